/*
 * Every fault point once: FAULT(enumerator, "name"), where a build with FAULTS=1 can be told to die or freeze. docs/lifecycle.md tells
 * what each leaves behind. No include guard: included for its expansion.
 */
FAULT(FAULT_GATEWAY_BEFORE_SEND, "gateway_before_send")
FAULT(FAULT_GATEWAY_AFTER_SEND, "gateway_after_send")
FAULT(FAULT_GATEWAY_AFTER_REPLY, "gateway_after_reply")
FAULT(FAULT_GATEWAY_MID_REPLY, "gateway_mid_reply")
FAULT(FAULT_GATEWAY_AFTER_PUBLISH, "gateway_after_publish")
FAULT(FAULT_GATEWAY_AFTER_CONFIRM, "gateway_after_confirm")
FAULT(FAULT_WORKER_BEFORE_BEGIN, "worker_before_begin")
FAULT(FAULT_WORKER_BEFORE_COMMIT, "worker_before_commit")
FAULT(FAULT_WORKER_AFTER_COMMIT, "worker_after_commit")
FAULT(FAULT_WORKER_BEFORE_ACK, "worker_before_ack")
FAULT(FAULT_WORKER_AFTER_ACK, "worker_after_ack")
FAULT(FAULT_KEEPER_AFTER_ELECTION, "keeper_after_election")
FAULT(FAULT_KEEPER_AFTER_GENERATION, "keeper_after_generation")
FAULT(FAULT_KEEPER_BEFORE_VERIFY, "keeper_before_verify")
FAULT(FAULT_KEEPER_AFTER_VERIFY, "keeper_after_verify")
FAULT(FAULT_KEEPER_BEFORE_TERMS, "keeper_before_terms")
FAULT(FAULT_KEEPER_BEFORE_CLOSE, "keeper_before_close")
FAULT(FAULT_KEEPER_BEFORE_REMOVE, "keeper_before_remove")
FAULT(FAULT_RELEASE_BEFORE_GIVE, "release_before_give")
FAULT(FAULT_RELEASE_BEFORE_MARK, "release_before_mark")
