#!/bin/bash
# hosts.sh DIR COMMAND... makes two hosts, 10.77.0.11 and 10.77.0.12, and runs a command beside them.
# A host is a network namespace with a name of its own, which a switch connects to the others; no
# packet leaves them. DIR/agent HOST COMMAND... runs a command on one, as ssh would.
#
# unshare -rnmpf --kill-child --mount-proc hosts.sh DIR COMMAND... leaves nothing behind.
set -eu
dir=$1
shift
ip link set lo up
ip link add name switch type bridge
ip addr add 10.77.0.1/24 dev switch
ip link set switch up
for i in 1 2; do
  unshare -nu bash -c "hostname host$i && touch '$dir/up$i' && exec sleep infinity" &
  echo $! >"$dir/10.77.0.1$i"
  until [ -e "$dir/up$i" ]; do sleep 0.02; done
  ip link add name "port$i" type veth peer name eth0 netns $!
  ip link set "port$i" master switch up
  nsenter -t $! -n bash -c "ip link set lo up && ip addr add 10.77.0.1$i/24 dev eth0 && ip link set eth0 up"
done
cat >"$dir/agent" <<AGENT
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done # options of ssh
host=\$1
shift
exec nsenter -t "\$(cat "$dir/\$host")" -n -u -- sh -c "\$*"
AGENT
chmod +x "$dir/agent"
"$@"
