#!/bin/sh
# Makes the container image that RESWEEP_TEST_DATABASE=testcontainers starts, where none can be pulled:
#   tests/support/container_image.sh [NAME:TAG]      (default postgres:15; root, debootstrap, a running dockerd)
# It is Debian's own PostgreSQL behind the official image's three variables: POSTGRES_USER, POSTGRES_PASSWORD and
# POSTGRES_DB. The mirror and the release are those of this machine's apt, so that no host is named here.
set -eu

image=${1:-postgres:15}
major=${image##*:}
work=$(mktemp -d "${TMPDIR:-/tmp}/container-image.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" | head -n 1)
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
proxy=$(apt-config shell proxy Acquire::http::Proxy | sed "s/^proxy='\(.*\)'$/\1/")
if [ -n "$proxy" ]; then
    export http_proxy="$proxy" https_proxy="$proxy"
fi

debootstrap --variant=minbase --include="postgresql-$major,locales" "$release" "$work/root" "$mirror" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" "$work/root/debootstrap/debootstrap.log" >&2
    exit 1
}
rm -rf "$work/root/var/cache/apt" "$work/root/var/lib/apt/lists" "$work/root/usr/share/doc" "$work/root/usr/share/man"

cat >"$work/root/usr/local/bin/entrypoint" <<'ENTRYPOINT'
#!/bin/sh
# The official image's contract, as far as the tests use it: a superuser with a password, a database, TCP on 5432.
set -eu
bin=$(echo /usr/lib/postgresql/*/bin)
data=/var/lib/postgresql/container
user=${POSTGRES_USER:-postgres}
if [ ! -e "$data/PG_VERSION" ]; then
    install -d -o postgres -g postgres -m 700 "$data" /var/run/postgresql
    secret=$(mktemp)
    printf '%s' "${POSTGRES_PASSWORD:?}" >"$secret"
    chown postgres "$secret"
    setpriv --reuid=postgres --regid=postgres --init-groups \
        "$bin/initdb" -D "$data" -U "$user" -A scram-sha-256 --pwfile="$secret" -E UTF8 --locale=C.UTF-8
    rm -f "$secret"
    echo 'host all all all scram-sha-256' >>"$data/pg_hba.conf"
    echo "CREATE DATABASE \"${POSTGRES_DB:-$user}\"" |
        setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" --single -D "$data" postgres
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups \
    "$bin/postgres" -D "$data" -c listen_addresses='*' -c unix_socket_directories=/var/run/postgresql "$@"
ENTRYPOINT
chmod 755 "$work/root/usr/local/bin/entrypoint"

tar -C "$work/root" -c . | docker import \
    --change 'ENTRYPOINT ["/usr/local/bin/entrypoint"]' \
    --change "ENV PATH=/usr/lib/postgresql/$major/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
    --change 'EXPOSE 5432' \
    - "$image"
