# shellcheck shell=bash
# Finds docker and compose, or prints how to install them. Source this file.
export DOCKER_BUILDKIT=1 COMPOSE_DOCKER_CLI_BUILD=1

engine_fails() { printf '%s\n' "$@" >&2; exit 3; }

# A newer client rejects BuildKit without its plugin buildx, so the first client that can build is used:
# with Debian's docker.io that may be the second in the PATH.
find_docker() {
  local candidate
  docker=
  for candidate in $(type -ap docker | awk '!seen[$0]++'); do
    docker=${docker:-$candidate}
    if "$candidate" buildx version >/dev/null 2>&1 ||
      [ "$("$candidate" version --format '{{.Client.Version}}' 2>/dev/null | cut -d. -f1)" -lt 23 ] 2>/dev/null; then
      docker=$candidate
      return 0
    fi
  done
  return 1
}

need_docker() {
  local builds=yes said
  find_docker || builds=no
  [ -n "$docker" ] || engine_fails 'This needs a Docker engine, and there is no docker in the PATH.' \
    'On Debian: apt-get install docker.io docker-compose'
  if ! said=$("$docker" version --format '{{.Server.Version}}' 2>&1); then
    case $said in
    *'permission denied'*) engine_fails 'The Docker engine is not for this user: add them to the group docker, and log in again:' \
      "  sudo usermod -aG docker $(id -un)" ;;
    *) engine_fails "No Docker engine answers${DOCKER_HOST:+ at DOCKER_HOST=$DOCKER_HOST}. Start it:" \
      '  sudo systemctl start docker' '  sudo dockerd &                          (where there is no systemd)' "docker says: ${said##*$'\n'}" ;;
    esac
  fi
  [ $builds = yes ] || engine_fails "$docker cannot build with BuildKit, for it lacks the plugin buildx." \
    'Install that, or have a client before it in the PATH that needs none, such as that of Debian'\''s docker.io.'
}

# engine_arch prints the engine's architecture, which may differ from this machine's.
engine_arch() {
  local arch
  arch=$("$docker" version --format '{{.Server.Arch}}' 2>/dev/null) || arch=
  echo "${arch:-$(go env GOHOSTARCH)}"
}

# compose runs docker-compose.yaml, with the plugin or with the older program.
compose() {
  if "$docker" compose version >/dev/null 2>&1; then
    "$docker" compose --project-name slicefeed --file docker-compose.yaml "$@"
  else
    PATH=$(dirname "$docker"):$PATH docker-compose --project-name slicefeed --file docker-compose.yaml "$@"
  fi
}

need_compose() {
  "$docker" compose version >/dev/null 2>&1 || type docker-compose >/dev/null 2>&1 ||
    engine_fails 'This needs docker compose or docker-compose. On Debian: apt-get install docker-compose'
}
