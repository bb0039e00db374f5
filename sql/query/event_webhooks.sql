-- Whether events are passed on to webhooks.
SELECT EXISTS (SELECT FROM webhook WHERE state = 'enabled') AS are_wanted
