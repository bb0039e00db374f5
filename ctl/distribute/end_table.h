/*
 * How the request for a listed user ended, apart from being issued: END(name, answer) for each
 * answer that is final, FLAW(name, status, text) for what the list itself has wrong. No include
 * guard: included for its expansion.
 */
END(END_OUT_OF_STOCK, ANSWER_OUT_OF_STOCK)
END(END_ENDED, ANSWER_ENDED)
END(END_LIMIT_REACHED, ANSWER_LIMIT_REACHED)
FLAW(END_INVALID, "invalid", "the line has no valid user id")
FLAW(END_DUPLICATE, "duplicate", "the user is listed before")
FLAW(END_TOO_MANY, "duplicate", "the user is listed more often than any limit allows")
