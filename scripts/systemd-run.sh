#!/usr/bin/env bash
# Runs the packages' units under systemd. A server and two clients train, and the script kills each
# of them once with SIGKILL. systemd boots in a container (systemd-nspawn) over a temporary copy of
# this system, with only a loopback network. The script must run as root.
#
#   systemd-run.sh DEBS QUICKSTART     folders of `make deb` and `make demo-data`
set -euo pipefail

# inside runs within the container, under systemd.
inside() {
  export DEBIAN_FRONTEND=noninteractive
  dpkg -i /mnt/debs/psyche_*.deb /mnt/debs/psyche-client_*.deb
  mkdir -p /srv/psyche
  cp -r /mnt/quickstart/data /mnt/quickstart/model /srv/psyche/
  sed -e 's#build/quickstart/#/srv/psyche/#; s/^run_id = .*/run_id = "units"/; s/^init_min_clients = .*/init_min_clients = 2/; s/^min_clients = .*/min_clients = 1/; s/^total_steps = 24$/total_steps = 48/' \
    /mnt/smoke.toml >/srv/psyche/state.toml
  chmod -R go+rX /srv/psyche

  sed -i 's#^PSYCHE_SERVER_FLAGS=.*#PSYCHE_SERVER_FLAGS=--state=/srv/psyche/state.toml#' /etc/psyche/server.env
  sed -i 's/^RUN_ID=.*/RUN_ID=units/; s/^SERVER_ADDR=.*/SERVER_ADDR=127.0.0.1:39405/; s/^PSYCHE_CLIENT_FLAGS=.*/PSYCHE_CLIENT_FLAGS=--allow-local-paths/' /etc/psyche/client.env
  cp /etc/psyche/client.env /etc/psyche/client-2.env
  sed 's#psyche-client$#psyche-client-2#; s#%S/psyche-client$#%S/psyche-client-2#; s#client.env#client-2.env#' \
    /lib/systemd/system/psyche-client.service >/etc/systemd/system/psyche-client-2.service
  key() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
  for n in client client-2; do printf 'RAW_IDENTITY_SECRET_KEY=%s\n' "$(key)" >>"/etc/psyche/$n.env"; done

  systemctl daemon-reload
  systemctl start psyche-server psyche-client psyche-client-2
  local units=(psyche-server psyche-client psyche-client-2) at=4
  for unit in "${units[@]}"; do
    reach "$at"
    printf '== step %s: killing %s\n' "$(step)" "$unit"
    systemctl kill -s KILL "$unit"
    at=$((at + 12))
  done
  local left=300
  until [ "$(digests | wc -l)" -ge 2 ]; do
    sleep 1
    left=$((left - 1))
    [ "$left" -gt 0 ] || fail "the run is not finished"
  done
  digests
  [ "$(digests | sort -u | wc -l)" -eq 1 ] || fail "the models differ"
  for unit in "${units[@]}"; do
    restarts=$(journalctl -o cat -u "$unit" | grep -c 'Scheduled restart job' || true)
    printf '== %s restarted %s times\n' "$unit" "$restarts"
    [ "$restarts" -ge 1 ] || fail "$unit did not restart"
  done
  systemctl stop psyche-server
  dpkg -P psyche psyche-client
  echo "== passed"
}

step() { curl -s http://127.0.0.1:39406/metrics | sed -n 's/^psyche_[a-z_]*step{[^}]*} \([0-9]*\).*/\1/p' | sort -n | tail -1; }

digests() { journalctl -o cat -u psyche-client -u psyche-client-2 | sed -n 's/.*the run is finished.*digest[=": ]*\([0-9a-f]\{64\}\).*/\1/p'; }

reach() {
  local left=240
  until [ "$(step || true)" -ge "$1" ] 2>/dev/null; do
    sleep 0.5
    left=$((left - 1))
    [ "$left" -gt 0 ] || fail "step $1 is not reached"
  done
}

fail() {
  printf '%s\n' "$1" >&2
  journalctl -n 60 --no-pager -u 'psyche*' >&2
  exit 1
}

if [ "${1:-}" = inside ]; then
  inside
  exit
fi
debs=$(realpath "${1:?usage: systemd-run.sh DEBS QUICKSTART}") quickstart=$(realpath "${2:?usage: systemd-run.sh DEBS QUICKSTART}")
command -v systemd-nspawn >/dev/null || { echo "skipped: systemd-nspawn is not installed (apt-get install systemd-container)"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "skipped: only root can start a container"; exit 0; }
here=$(realpath "$(dirname "$0")")
root=$(mktemp -d)
log=$(mktemp)
mount --bind / "$root"
trap 'umount "$root" && rmdir "$root"; rm -f "$log"' EXIT
timeout 900 systemd-nspawn -q --volatile=overlay -D "$root" --private-network --register=no --keep-unit \
  --bind-ro="$debs:/mnt/debs" --bind-ro="$quickstart:/mnt/quickstart" --bind-ro="$here/systemd-run.sh:/mnt/systemd-run.sh" \
  --bind-ro="$here/../configs/smoke/state.toml:/mnt/smoke.toml" --boot \
  systemd.journald.forward_to_console=1 \
  'systemd.run="/bin/bash /mnt/systemd-run.sh inside"' systemd.run_success_action=exit systemd.run_failure_action=exit </dev/null | tee "$log"
grep -q '== passed' "$log"
