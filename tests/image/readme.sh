#!/usr/bin/env bash
# Runs commands of the README in FOLDER, as root and in a copy of this machine's root file system.
#
#     readme.sh FOLDER COMMANDS
#
# When the commands end, the copy is removed and all processes are killed. Only the loopback network is available.
set -euo pipefail

# --- replacements for systemd, Docker and Rust ------------------------------------------------------------

sudo() { "$@"; } # the user is already root

systemctl() { # starts the unit's command as the unit's user, in its folder
    [[ $* == "enable --now tidings" ]]
    command systemctl enable tidings
    [[ -L /etc/systemd/system/multi-user.target.wants/tidings.service ]]
    local User WorkingDirectory ExecStart
    source <(sed -nE 's/^(User|WorkingDirectory|ExecStart)=(.*)/\1="\2"/p' /usr/lib/systemd/system/tidings.service)
    # shellcheck disable=SC2086 # a command line
    start runuser -u "$User" -- env --chdir="$WorkingDirectory" $ExecStart
}

docker() { # uses buildah, which has no ports and no named volumes
    local verb=$1 program buildah=(buildah --storage-driver=vfs --root=/run/images --runroot=/run/containers)
    shift
    case $verb in
    build) "${buildah[@]}" build --isolation=chroot --format=docker "$@" ;;
    run)
        [[ $* == "-d --name tidings "*" tidings" ]]
        "${buildah[@]}" from --name tidings localhost/tidings
        program=$("${buildah[@]}" inspect --type=image --format \
            '{{range .Docker.Config.Entrypoint}}{{.}} {{end}}{{range .Docker.Config.Cmd}}{{.}} {{end}}' localhost/tidings)
        # shellcheck disable=SC2086 # a command line
        start "${buildah[@]}" run --isolation=chroot tidings -- $program
        ;;
    exec) "${buildah[@]}" run --isolation=chroot "$1" -- "${@:2}" ;;
    *) false ;;
    esac
}

cargo() { [[ $* == "install --path ." ]]; } # other steps of scripts/test build this package

# --- commands that test an installation -------------------------------------------------------------------

# Starts a server and waits until it listens. The server ends with this script.
start() {
    local lines
    exec {lines}< <("$@" 2>&1)
    sed '/listens on/q' <&"$lines"
}

# Follows the first steps of the guide in an empty folder.
try_out() {
    mkdir /tried && cd /tried
    timeout 10 tidings demo
    tidings init
    TIDINGS_SERVER_LISTEN=127.0.0.1:8099 start tidings serve
    tidings health --url http://127.0.0.1:8099
}

# --- the copy of the root file system ---------------------------------------------------------------------

if [[ ${3-} != isolated ]]; then
    exec unshare --mount --net --pid --fork --kill-child --propagation=private bash "$0" "$1" "$2" isolated
fi
ip link set lo up
mkdir -p "$1/copy"
mount -t tmpfs none "$1/copy"
root=$1/copy/root
mkdir "$root" "$1/copy/changes" "$1/copy/work"
mount -t overlay -o "lowerdir=/,upperdir=$1/copy/changes,workdir=$1/copy/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
for folder in run tmp; do mount -t tmpfs none "$root/$folder"; done
mkdir "$root/run/folder"
mount --bind "$1" "$root/run/folder"
env --ignore-environment HOME=/root PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    chroot "$root" bash -c "set -euxo pipefail; $(declare -f); cd /run/folder; $2"
