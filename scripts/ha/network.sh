# shellcheck shell=bash
# Three machines on one: network namespaces, each with an address of its own behind a bridge, so
# that any one can be cut off. Sourced by scripts/ha.sh.
#
#   couponmq-BASE-m1   the namespace, with lo and eth0
#   cmqBASEm1          the other end of its eth0, a port of
#   cmqBASE            the bridge, through which HAProxy and couponctl reach all machines
#
# The names, and the network 10.73.N.0/24, are from PORT_BASE.

# Whether namespaces may be made is tried once, since a bed keeps its addresses.
machines_choose() {
	local probe=couponmq-$STACK_PORT_BASE-probe
	if [[ ! -e $RUN_DIR/machines ]]; then
		[[ ! -e $RUN_DIR/env ]] ||
			die "$RUN_DIR holds the stack of one machine; choose another RUN_DIR="
		ip netns delete "$probe" 2>/dev/null || true # of an interrupted start
		if ip netns add "$probe" 2>/dev/null &&
			ip -n "$probe" link set lo up 2>/dev/null; then
			file_put "$RUN_DIR/machines" namespaces$'\n'
		else
			file_put "$RUN_DIR/machines" loopback$'\n'
			say "no network namespace may be made here (root may): the machines are" \
				"addresses of loopback, and cannot be cut off"
		fi
		ip netns delete "$probe" 2>/dev/null || true
	fi
	machines_load
}

machines_load() {
	read -r MACHINES_ARE 2>/dev/null <"$RUN_DIR/machines" ||
		die "$RUN_DIR has no machines; make run-ha makes them in a folder of their own"
}

addresses_set() {
	local first=10
	[[ $MACHINES_ARE == namespaces ]] || first=127
	BRIDGE=cmq$STACK_PORT_BASE
	NETWORK=$first.73.$((STACK_PORT_BASE / 100 % 256))
	BALANCER=$NETWORK.254
	PORT_SENTINEL=$((STACK_PORT_BASE + 63)) PORT_ETCD=$((STACK_PORT_BASE + 23))
	PORT_ETCD_PEER=$((STACK_PORT_BASE + 24)) PORT_PATRONI=$((STACK_PORT_BASE + 8))
	PORT_WORKER=$((PORT_HTTP + 1)) PORT_RABBITMQ_API=$((STACK_PORT_BASE + 73))
	POSTGRES_HOSTS=$(addresses ,)
}

namespace_of() {
	echo "couponmq-$STACK_PORT_BASE-$1"
}

# Prints the address of a machine, or of one of its processes.
address_of() {
	local machine=${1%%-*}
	echo "$NETWORK.${machine#m}"
}

# addresses SEPARATOR [PORT]: of all machines.
addresses() {
	local machine text=
	for machine in "${MACHINES[@]}"; do
		text+=${text:+$1}$(address_of "$machine")${2:+:$2}
	done
	echo "$text"
}

# One mapper of ports for all nodes of loopback, since each would take 127.0.0.1 as well.
machine_has() {
	[[ $MACHINES_ARE == namespaces || $1 == m1 || $2 != epmd ]]
}

# Sets ON to what a command is prefixed with to run on the machine of NAME.
on_machine() {
	ON=()
	[[ $MACHINES_ARE == loopback ]] ||
		ON=(nsenter "--net=/run/netns/$(namespace_of "${1%%-*}")")
}

# Makes what is not there, for instance after an interrupted start.
network_make() {
	local machine
	[[ $MACHINES_ARE == namespaces ]] || return 0
	network_is_ours ||
		die "PORT_BASE=$STACK_PORT_BASE is that of the machines in $OWNER;" \
			"choose another PORT_BASE="
	if [[ ! -e /sys/class/net/$BRIDGE ]]; then
		[[ -z $(ip -4 route show root "$NETWORK.0/24") ]] ||
			die "the network $NETWORK.0/24, which PORT_BASE=$STACK_PORT_BASE" \
				"chooses, is in use; choose another PORT_BASE="
		ip link add "$BRIDGE" type bridge
		# Names are only from PORT_BASE: another folder finds whose they are.
		ip link set "$BRIDGE" alias "$RUN_DIR"
	fi
	ip address replace "$BALANCER/24" dev "$BRIDGE"
	ip link set "$BRIDGE" up
	for machine in "${MACHINES[@]}"; do
		machine_connect "$machine"
	done
}

# Sets OWNER to the folder of the bed that has the bridge, which is made first and removed last.
network_is_ours() {
	OWNER=$(cat "/sys/class/net/$BRIDGE/ifalias" 2>/dev/null) || OWNER=
	[[ -z $OWNER || $OWNER == "$RUN_DIR" ]]
}

machine_connect() {
	local port=$BRIDGE$1 space
	space=$(namespace_of "$1")
	if ! ip -n "$space" link set lo up 2>/dev/null; then
		ip netns delete "$space" 2>/dev/null || true # half made
		ip netns add "$space"
		ip -n "$space" link set lo up
	fi
	[[ -e /sys/class/net/$port ]] ||
		ip link add "$port" type veth peer name eth0 netns "$space"
	ip -n "$space" address replace "$(address_of "$1")/24" dev eth0
	ip -n "$space" link set eth0 up
	ip -n "$space" route replace default via "$BALANCER"
	ip link set "$port" master "$BRIDGE" up
}

# machine_cut MACHINE [in|out]. One way: a filter that lets nothing pass is put on the end of the
# cable that the packets enter.
machine_cut() {
	local nothing=(root tbf rate 8bit burst 1 limit 1)
	[[ $MACHINES_ARE == namespaces ]] || die "addresses of loopback cannot be cut off"
	case ${2:-both} in
	in) tc qdisc replace dev "$BRIDGE$1" "${nothing[@]}" ;;
	out) tc -n "$(namespace_of "$1")" qdisc replace dev eth0 "${nothing[@]}" ;;
	both) ip link set "$BRIDGE$1" down ;;
	*) die "unknown way $2; there are: in out" ;;
	esac
}

machine_mend() {
	[[ $MACHINES_ARE == namespaces ]] || return 0
	ip link set "$BRIDGE$1" up
	tc qdisc delete dev "$BRIDGE$1" root 2>/dev/null || true
	tc -n "$(namespace_of "$1")" qdisc delete dev eth0 root 2>/dev/null || true
}

# What is left of a machine, for instance PostgreSQL without its Patroni.
strays_kill() {
	local pid
	for pid in $(ip netns pids "$(namespace_of "$1")" 2>/dev/null); do
		kill -KILL "$pid" 2>/dev/null || true
	done
}

network_remove() {
	local machine space
	[[ $MACHINES_ARE == namespaces && -e /sys/class/net/$BRIDGE ]] || return 0
	network_is_ours || return 0
	for machine in "${MACHINES[@]}"; do
		space=$(namespace_of "$machine")
		strays_kill "$machine"
		ip link delete "$BRIDGE$machine" 2>/dev/null || true
		ip netns delete "$space" 2>/dev/null || true
	done
	ip link delete "$BRIDGE"
}
