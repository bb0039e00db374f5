# shellcheck shell=bash
# ZooKeeper, for tests of the locks. Sourced by scripts/stack.sh.

# Short ticks, so that short sessions are allowed; a session lasts 2 to 20 ticks by default.
zookeeper_spawn() {
	mkdir -p "$RUN_DIR/zookeeper"
	cat >"$RUN_DIR/zookeeper/zoo.cfg" <<-TEXT
	tickTime=200
	maxSessionTimeout=120000
	maxClientCnxns=200
	dataDir=$RUN_DIR/zookeeper/data
	clientPort=$PORT_ZOOKEEPER
	clientPortAddress=127.0.0.1
	admin.enableServer=false
	extendedTypesEnabled=true
	4lw.commands.whitelist=dump
	TEXT
	process_spawn zookeeper java -Xmx128m \
		-cp '/usr/share/java/zookeeper.jar:/usr/share/java/*' \
		org.apache.zookeeper.server.quorum.QuorumPeerMain ./zoo.cfg
}

zookeeper_ready() {
	port_answers "$PORT_ZOOKEEPER"
}
