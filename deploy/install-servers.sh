#!/bin/sh
# Sees to it that everything `make run` and `make test` need is installed: Redis, PostgreSQL, a C toolchain, Rust.
# Touches nothing that is there already; then it needs no root and no network. The distribution's own services are
# not started by it and never used: Tollgate runs private servers under its data directory.
set -eu

have() {
    command -v "$1" >/dev/null 2>&1
}

have_redis() {
    have redis-server || have valkey-server
}

# Distributions keep PostgreSQL's programs out of the path, in a directory for each version.
have_postgres() {
    have initdb && return 0
    for program in /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb /usr/libexec/postgresql*/initdb \
        /usr/local/pgsql/bin/initdb /opt/homebrew/opt/postgresql*/bin/initdb /usr/local/opt/postgresql*/bin/initdb; do
        [ -x "$program" ] && return 0
    done
    return 1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs the packages given, without letting any of them start a service.
install_packages() {
    if ! have apt-get; then
        echo "Please install Redis (7.0 or newer) or Valkey, the PostgreSQL server and a C compiler with your system's" \
            "package manager (Fedora: redis postgresql-server gcc; Alpine: redis postgresql build-base; macOS:" \
            "brew install redis postgresql@17), then run this again." >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! have sudo; then
        echo "Please install these packages as root, then run this again: $*" >&2
        exit 1
    fi
    echo "Installing from your system's packages (as root): $*" >&2
    # 101 tells the packages' scripts that starting is forbidden. A policy that the machine has already stays.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

set --
have_redis || set -- "$@" redis-server
have_postgres || set -- "$@" postgresql
have cc || set -- "$@" build-essential
[ "$#" -eq 0 ] || install_packages "$@"

if ! have_redis || ! have_postgres; then
    echo "redis-server or initdb is still not to be found after the installation: see the messages above." >&2
    exit 1
fi

if ! have cargo; then
    echo "Please install Rust, for example by: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
        "(it needs curl and ca-certificates), then run this again." >&2
    exit 1
fi

# Cargo.toml says with which Rust this builds at least. Distributions often have an older one.
needed=$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml")
found=$(rustc --version 2>/dev/null | awk '{ print $2 }')
is_older() {
    awk -v found="$1" -v needed="$2" 'BEGIN {
        split(found, f, "."); split(needed, n, ".")
        exit !(f[1] + 0 < n[1] + 0 || (f[1] + 0 == n[1] + 0 && f[2] + 0 < n[2] + 0))
    }'
}
if [ -n "$found" ] && is_older "$found" "$needed"; then
    echo "Please install Rust $needed or newer; this is $found. With rustup: rustup update. Without it:" \
        "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh, and put \$HOME/.cargo/bin before" \
        "the other one in PATH. Then run this again." >&2
    exit 1
fi
