/*
 * The paths beside those of the operations: PAGE("path", function that answers, whether it is for
 * monitoring, so that a few connections beyond COUPON_CONNECTIONS_MAX are answered, too, its cost
 * in the event loop in about microseconds, turns.h). They take GET and HEAD. No include guard:
 * included for its expansion.
 */
PAGE("/healthz", on_healthz, 1, 2)
PAGE("/readyz", on_readyz, 1, 16)
PAGE("/metrics", on_metrics, 1, 150)
PAGE("/openapi.json", on_openapi, 0, 20)
