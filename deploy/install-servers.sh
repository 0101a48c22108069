#!/bin/sh
# Sees to it that everything `make run` and `make test` need is installed: Redis, PostgreSQL, a C toolchain, Rust.
# Touches nothing that is there already; then it needs no root and no network. Never uses, starts or changes the
# distribution's own services: Tollgate runs private servers under its data directory.
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

missing=""
have_redis || missing="$missing redis-server"
have_postgres || missing="$missing postgresql"
have cc || missing="$missing build-essential"

if [ -n "$missing" ]; then
    if ! have apt-get; then
        echo "Please install Redis (7.0 or newer) or Valkey, the PostgreSQL server and a C compiler with your system's" \
            "package manager (Fedora: redis postgresql-server gcc; Alpine: redis postgresql build-base; macOS:" \
            "brew install redis postgresql@17), then run this again." >&2
        exit 1
    fi
    as_root=""
    if [ "$(id -u)" -ne 0 ]; then
        if ! have sudo; then
            echo "Please install these packages as root, then run this again:$missing" >&2
            exit 1
        fi
        as_root="sudo"
    fi
    echo "Installing$missing from your system's packages${as_root:+ with sudo}. Their own services are not used." >&2

    # While the packages are installed nothing may start a service: 101 tells invoke-rc.d that starting is forbidden.
    # A policy that the machine has already stays as it is.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
        $as_root chmod 755 "$policy"
        # shellcheck disable=SC2064 # both values are those of now
        trap "$as_root rm -f $policy" EXIT
    fi
    # Without this PostgreSQL's package would make a cluster of its own, which nobody here uses.
    settings=/etc/postgresql-common/createcluster.conf
    if [ ! -e "$settings" ]; then
        $as_root mkdir -p "$(dirname "$settings")"
        echo "create_main_cluster = false" | $as_root tee "$settings" >/dev/null
    fi
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
    # shellcheck disable=SC2086 # a list of names, split on purpose
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

if ! have_redis || ! have_postgres; then
    echo "The packages are installed, but redis-server or initdb is still not to be found: see the messages above." >&2
    exit 1
fi

if ! have cargo; then
    echo "Please install Rust, for example by: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh" \
        "(and open a new shell), then run this again." >&2
    exit 1
fi
