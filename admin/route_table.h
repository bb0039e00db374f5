/*
 * Each operation of /admin/v1 once: ROUTE(METHOD, path, role, command, name, more). The role is the
 * least that may do it: MONITOR reads, CAMPAIGN runs campaigns, ADMIN does what concerns the whole
 * installation. The name is that of the operation in the description by OpenAPI. What stands in
 * braces in the path is the option of that name, or else the next argument of the command. The
 * other options are members of the body, or of the query of GET. No include guard: included for its
 * expansion.
 */
ROUTE(GET, "/campaigns", MONITOR, "list", "listCampaigns", .list = "campaigns", .count = "100")
ROUTE(POST, "/campaigns", CAMPAIGN, "create", "createCampaign", .made = "coupon")
ROUTE(GET, "/campaigns/{coupon}", MONITOR, "show", "getCampaign", .flags = ROUTE_PARTIAL)
ROUTE(PATCH, "/campaigns/{coupon}", CAMPAIGN, "edit", "editCampaign", .flags = ROUTE_NEEDS_VERSION)
ROUTE(POST, "/campaigns/{coupon}/publish", CAMPAIGN, "publish", "publishCampaign")
ROUTE(POST, "/campaigns/{coupon}/pause", CAMPAIGN, "pause", "pauseCampaign")
ROUTE(POST, "/campaigns/{coupon}/resume", CAMPAIGN, "resume", "resumeCampaign")
ROUTE(POST, "/campaigns/{coupon}/close", CAMPAIGN, "close", "closeCampaign")
ROUTE(PUT, "/campaigns/{coupon}/stock", CAMPAIGN, "stock", "setStock", .flags = ROUTE_NEEDS_VERSION)
ROUTE(GET, "/campaigns/{coupon}/check", MONITOR, "check", "checkCampaign", .flags = ROUTE_VERDICT)
ROUTE(GET, "/campaigns/{coupon}/history", MONITOR, "history", "getCampaignHistory",
      .list = "history")
ROUTE(GET, "/campaigns/{coupon}/report", MONITOR, "report", "getCampaignReport", .list = "days")
ROUTE(GET, "/report", MONITOR, "report", "getReport", .list = "days", .option = "all")
ROUTE(GET, "/campaigns/{coupon}/curve", MONITOR, "show --curve", "getCampaignCurve",
      .list = "curve")
ROUTE(GET, "/campaigns/{coupon}/recent", MONITOR, "show --recent", "listRecentReceives",
      .list = "recent")
ROUTE(GET, "/campaigns/{coupon}/coupons", MONITOR, "export", "exportCoupons", .list = "coupons",
      .option = "format", .value = "jsonl")
ROUTE(GET, "/campaigns/{coupon}/codes", MONITOR, "codes list", "listCodeSets")
ROUTE(POST, "/campaigns/{coupon}/codes", CAMPAIGN, "codes import", "importCodes", .input = "code",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/campaigns/{coupon}/distribute", CAMPAIGN, "distribute", "distributeCoupons",
      .option = "refused", .value = "-", .input = "user", .flags = ROUTE_VERDICT)
ROUTE(POST, "/campaigns/{coupon}/sets", CAMPAIGN, "codes generate", "generateCodes")
ROUTE(POST, "/campaigns/{coupon}/words", CAMPAIGN, "codes generate --word", "generateWord")
ROUTE(GET, "/campaigns/{coupon}/users/{user}", MONITOR, "status", "getUserStatus",
      .flags = ROUTE_VERDICT)
ROUTE(GET, "/campaigns/{coupon}/users/{user}/trace", MONITOR, "trace", "traceUser",
      .list = "receives", .flags = ROUTE_VERDICT | ROUTE_PARTIAL)
ROUTE(POST, "/campaigns/{coupon}/users/{user}/void", CAMPAIGN, "void", "voidUserReceives",
      .list = "receives", .flags = ROUTE_VERDICT)
ROUTE(POST, "/campaigns/{coupon}/audit", MONITOR, "audit", "auditCampaign",
      .flags = ROUTE_JOB | ROUTE_VERDICT | ROUTE_PARTIAL)
ROUTE(POST, "/campaigns/{coupon}/rebuild", ADMIN, "rebuild", "rebuildCampaign", .list = "rebuild",
      .flags = ROUTE_JOB)
ROUTE(POST, "/audit", MONITOR, "audit", "auditAll",
      .flags = ROUTE_JOB | ROUTE_VERDICT | ROUTE_PARTIAL, .option = "all")
ROUTE(GET, "/users/{user}/receives", MONITOR, "receive list", "listUserReceives",
      .list = "receives")
ROUTE(GET, "/users/{user}/quote", MONITOR, "receive quote", "quoteUser", .flags = ROUTE_VERDICT)
ROUTE(GET, "/receives/{receive}", MONITOR, "status", "getReceiveStatus", .flags = ROUTE_VERDICT)
ROUTE(GET, "/receives/{receive}/trace", MONITOR, "trace", "traceReceive",
      .flags = ROUTE_VERDICT | ROUTE_PARTIAL)
ROUTE(POST, "/receives/{receive}/void", CAMPAIGN, "void", "voidReceive", .flags = ROUTE_VERDICT)
ROUTE(GET, "/receives/{receive}/uses", MONITOR, "receive show", "getReceiveUses")
ROUTE(GET, "/receives/{receive}/quote", MONITOR, "receive quote", "quoteReceive",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/receives/{receive}/hold", CAMPAIGN, "receive hold", "holdReceive",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/receives/{receive}/use", CAMPAIGN, "receive use", "useReceive",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/receives/{receive}/release", CAMPAIGN, "receive release", "releaseReceive",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/receives/{receive}/rollback", CAMPAIGN, "receive rollback", "rollbackReceive",
      .flags = ROUTE_VERDICT)
ROUTE(GET, "/codes/{code}", MONITOR, "codes show", "getCode")
ROUTE(POST, "/codes/revoke", CAMPAIGN, "codes revoke", "revokeCodes", .flags = ROUTE_VERDICT)
ROUTE(GET, "/sets/{set}/codes", CAMPAIGN, "codes export", "exportCodeSet", .list = "codes",
      .option = "format", .value = "jsonl")
ROUTE(PATCH, "/sets/{set}", CAMPAIGN, "codes edit", "editCodeSet")
ROUTE(POST, "/sets/{set}/revoke", CAMPAIGN, "codes revoke", "revokeCodeSet")
ROUTE(GET, "/webhooks", MONITOR, "webhook list", "listWebhooks", .list = "webhooks")
ROUTE(POST, "/webhooks", CAMPAIGN, "webhook create", "createWebhook", .made = "webhook")
ROUTE(GET, "/webhooks/{webhook}", MONITOR, "webhook show", "getWebhook")
ROUTE(PATCH, "/webhooks/{webhook}", CAMPAIGN, "webhook edit", "editWebhook")
ROUTE(DELETE, "/webhooks/{webhook}", CAMPAIGN, "webhook remove", "removeWebhook")
ROUTE(GET, "/webhooks/{webhook}/deliveries", MONITOR, "webhook show --deliveries", "listDeliveries",
      .list = "deliveries")
ROUTE(POST, "/webhooks/{webhook}/test", CAMPAIGN, "webhook test", "testWebhook",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/webhooks/{webhook}/rotate", CAMPAIGN, "webhook rotate", "rotateWebhookSecret")
ROUTE(POST, "/webhooks/{webhook}/resend", CAMPAIGN, "webhook show --resend", "resendDelivery")
ROUTE(GET, "/budgets", MONITOR, "budget list", "listBudgets", .list = "budgets")
ROUTE(POST, "/budgets", CAMPAIGN, "budget create", "createBudget", .made = "name")
ROUTE(GET, "/budgets/{budget}", MONITOR, "budget show", "getBudget")
ROUTE(PATCH, "/budgets/{budget}", CAMPAIGN, "budget edit", "editBudget")
ROUTE(GET, "/approvals", MONITOR, "approval list", "listApprovals", .list = "approvals")
ROUTE(GET, "/approvals/{approval}", MONITOR, "approval show", "getApproval")
ROUTE(POST, "/approvals/{approval}/give", CAMPAIGN, "approval give", "giveApproval",
      .list = "results", .flags = ROUTE_VERDICT)
ROUTE(POST, "/approvals/{approval}/refuse", CAMPAIGN, "approval refuse", "refuseApproval")
ROUTE(GET, "/keys", MONITOR, "key list", "listKeys", .list = "keys")
ROUTE(POST, "/keys", ADMIN, "key create", "createKey", .made = "key")
ROUTE(GET, "/keys/{api_key}", MONITOR, "key show", "getKey")
ROUTE(POST, "/keys/{api_key}/rotate", ADMIN, "key rotate", "rotateKey")
ROUTE(POST, "/keys/{api_key}/revoke", ADMIN, "key revoke", "revokeKey")
ROUTE(GET, "/events", MONITOR, "installation show --event-log", "getEventLog",
      .flags = ROUTE_VERDICT)
ROUTE(GET, "/history", MONITOR, "history", "getHistory", .list = "history")
ROUTE(GET, "/installation", MONITOR, "installation show", "getInstallation", .flags = ROUTE_VERDICT)
ROUTE(GET, "/doctor", MONITOR, "doctor", "getDoctor", .list = "lines",
      .flags = ROUTE_VERDICT | ROUTE_PARTIAL)
ROUTE(GET, "/dead", MONITOR, "dead list", "listDeadLetters")
ROUTE(GET, "/dead/{letter}", MONITOR, "dead show", "getDeadLetter")
ROUTE(POST, "/dead/requeue", ADMIN, "dead requeue", "requeueDeadLetters", .flags = ROUTE_VERDICT)
ROUTE(POST, "/dead/{letter}/requeue", ADMIN, "dead requeue", "requeueDeadLetter",
      .flags = ROUTE_VERDICT)
ROUTE(POST, "/dead/{letter}/remove", ADMIN, "dead remove", "removeDeadLetter", .list = "messages",
      .flags = ROUTE_VERDICT)
