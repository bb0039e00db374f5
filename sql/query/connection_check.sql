-- Whether the server still answers on this connection.
SELECT
