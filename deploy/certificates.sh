#!/usr/bin/env bash
# Makes the certificates of the link between the two halves, with nothing but openssl, and
# prints the kubectl commands that put them into the two clusters. It promises two CAs, one for
# each side, so that whoever can sign for one side cannot pose as the other; it refuses to
# replace a CA unasked, and to sign a certificate that outlives its CA.
set -euo pipefail

usage() {
  cat <<'END'
usage: certificates.sh [OPTION]... SIDE DIR          make or renew certificates
       certificates.sh [OPTION]... STEP SIDE DIR     replace a CA, in three steps

SIDE is one of
  inventory   CA, key and certificate of the inventory: what the secured side runs
  writer      CA, key and certificate of the writer: what the consuming side runs
  operator    key and certificate of a person, to ask the inventory; the writer's CA signs it
  all         the three of them in one place, for a first try

STEP replaces the CA of inventory or writer while the link goes on. After each step run what it
prints, and wait until it has arrived (docs/operate/runbooks/rotate-credentials.md):
  next-ca     make the next CA: the other side trusts both
  switch-ca   sign with it from now on
  drop-ca     the other side trusts the old one no longer

A second run renews keys and certificates, and keeps the CAs. On standard output are the kubectl
commands alone, so that it can be kept in a file and run.

  --dns NAME[,NAME]          names by which the inventory is called
                             (slicefeed-inventory.NAMESPACE.svc)
  --trust-domain NAME        SANs are spiffe://NAME/slicefeed/SIDE (example.org)
  --days N                   how long a certificate is valid (365)
  --ca-days N                how long a new CA is valid (3650)
  --secured-context NAME     kubectl's context of the secured cluster (secured)
  --consuming-context NAME   that of the consuming cluster (consuming)
  --inventory-namespace NAME where the inventory runs (slicefeed)
  --writer-namespace NAME    where the writer runs (slicefeed)
END
}

say() { printf '%s\n' "$*" >&2; }
die() {
  say "certificates.sh: $*"
  exit 1
}

# ---- what is asked for ------------------------------------------------------------

dns='' trust_domain=example.org days=365 ca_days=3650
secured=secured consuming=consuming inventory_namespace=slicefeed writer_namespace=slicefeed
words=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help)
      usage
      exit
      ;;
    --dns | --trust-domain | --days | --ca-days | --secured-context | --consuming-context | --inventory-namespace | --writer-namespace)
      [ $# -ge 2 ] && [ -n "$2" ] || die "$1 wants a value; certificates.sh --help lists the options"
      case $1 in
        --dns) dns=$2 ;;
        --trust-domain) trust_domain=$2 ;;
        --days) days=$2 ;;
        --ca-days) ca_days=$2 ;;
        --secured-context) secured=$2 ;;
        --consuming-context) consuming=$2 ;;
        --inventory-namespace) inventory_namespace=$2 ;;
        --writer-namespace) writer_namespace=$2 ;;
      esac
      shift
      ;;
    -*) die "there is no option $1; certificates.sh --help lists them" ;;
    *) words+=("$1") ;;
  esac
  shift
done

case ${#words[@]} in
  2) step='' side=${words[0]} dir=${words[1]} ;;
  3) step=${words[0]} side=${words[1]} dir=${words[2]} ;;
  *)
    usage >&2
    exit 2
    ;;
esac

number() { # option, value, most
  case $2 in
    '' | *[!0-9]* | 0* | ??????*) die "$1 is \"$2\": want a number of days, 1 to $3" ;;
  esac
  [ "$2" -le "$3" ] || die "$1 is $2: want a number of days, 1 to $3"
}
name() { # option, value
  case $2 in
    *[!A-Za-z0-9.-]* | -* | .*) die "$1 is \"$2\": want letters, digits, dots and dashes" ;;
  esac
}
context() { # option, value
  case $2 in
    *[!A-Za-z0-9@:/_.-]* | -*) die "$1 is \"$2\": want the name of a context as kubectl config get-contexts prints it, without blanks or quotes" ;;
  esac
}
number --days "$days" 825
number --ca-days "$ca_days" 7300
name --trust-domain "$trust_domain"
name --inventory-namespace "$inventory_namespace"
name --writer-namespace "$writer_namespace"
context --secured-context "$secured"
context --consuming-context "$consuming"
dns=${dns:-slicefeed-inventory.$inventory_namespace.svc}
case $dns in *[!A-Za-z0-9.,-]* | ,* | *, | *,,*) die "--dns is \"$dns\": want names of letters, digits, dots and dashes, separated by commas" ;; esac
for one in ${dns//,/ }; do name --dns "$one"; done

case $step:$side in
  :inventory | :writer | :operator | :all) ;;
  next-ca:inventory | next-ca:writer | switch-ca:inventory | switch-ca:writer | drop-ca:inventory | drop-ca:writer) ;;
  :*) die "SIDE is \"$side\": want inventory, writer, operator or all" ;;
  next-ca:* | switch-ca:* | drop-ca:*) die "SIDE is \"$side\": only inventory and writer have a CA" ;;
  *) die "STEP is \"$step\": want next-ca, switch-ca or drop-ca" ;;
esac
command -v openssl >/dev/null || die "there is no openssl on this machine: install it, it is all that is needed"

umask 077 # every file here is its owner's alone
mkdir -p "$dir" || die "cannot make the directory $dir: give one that you may write"
[ -w "$dir" ] || die "may not write into $dir: give a directory that you may write"
dir=$(cd "$dir" && pwd) # so that the commands can be run anywhere
# Beside what it replaces, so that mv is a rename: nobody reads a file that is half written.
scratch=$(mktemp -d "$dir/.making.XXXXXX")
trap 'rm -rf "$scratch"' EXIT

# ---- openssl -----------------------------------------------------------------------

# quietly runs openssl, which talks much, and shows what it said only if it failed.
quietly() {
  openssl "$@" >"$scratch/said" 2>&1 || {
    cat "$scratch/said" >&2
    die "openssl $1 failed, see above; nothing was replaced"
  }
}

key() { quietly genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

until_when() { openssl x509 -in "$1" -noout -enddate | cut -d= -f2; }

other() { [ "$1" = inventory ] && echo writer || echo inventory; }

# make_ca SIDE NAME makes NAME.key and NAME.crt of a side.
make_ca() {
  local to=$dir/$1/$2
  key "$scratch/ca.key"
  cat >"$scratch/ca.conf" <<END
[req]
distinguished_name = dn
prompt = no
[dn]
CN = slicefeed $1 CA $(openssl rand -hex 4)
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
END
  quietly req -x509 -new -sha256 -config "$scratch/ca.conf" -extensions ca -days "$ca_days" \
    -key "$scratch/ca.key" -out "$scratch/ca.crt"
  mkdir -p "$dir/$1"
  mv "$scratch/ca.key" "$to.key"
  mv "$scratch/ca.crt" "$to.crt"
  say "made $to.crt, valid until $(until_when "$to.crt")"
}

# ensure_ca SIDE makes a side's CA unless it is there.
ensure_ca() {
  local at=$dir/$1
  if [ -e "$at/ca.crt" ] && [ -e "$at/ca.key" ]; then
    say "kept $at/ca.crt, valid until $(until_when "$at/ca.crt")"
  elif [ -e "$at/ca.crt" ] || [ -e "$at/ca.key" ]; then
    die "$at has one of ca.crt and ca.key, and not the other: put the missing one back, or move both away for a new CA, which the other side must then be given"
  else
    make_ca "$1" ca
  fi
  [ -e "$at/public-ca.crt" ] || cp "$at/ca.crt" "$at/public-ca.crt"
}

# issue SIDE CA USAGE SANS makes a new key and its certificate.
issue() {
  local at=$dir/$1 ca=$dir/$2/ca
  openssl x509 -in "$ca.crt" -noout -checkend $((days * 86400)) >/dev/null ||
    die "$ca.crt is valid until $(until_when "$ca.crt"), a certificate of $days days would outlive it: take fewer --days, or replace the CA (next-ca)"
  key "$scratch/tls.key"
  cat >"$scratch/leaf.conf" <<END
[req]
distinguished_name = dn
prompt = no
[dn]
CN = slicefeed-$1
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $3
subjectAltName = $4
END
  quietly req -new -sha256 -config "$scratch/leaf.conf" -key "$scratch/tls.key" -out "$scratch/leaf.csr"
  quietly x509 -req -sha256 -in "$scratch/leaf.csr" -CA "$ca.crt" -CAkey "$ca.key" -set_serial "0x$(openssl rand -hex 16)" \
    -days "$days" -extfile "$scratch/leaf.conf" -extensions leaf -out "$scratch/tls.crt"
  mkdir -p "$at"
  mv "$scratch/tls.key" "$at/tls.key"
  mv "$scratch/tls.crt" "$at/tls.crt"
  say "made $at/tls.crt, valid until $(until_when "$at/tls.crt"): $4"
}

# trust SIDE gives a side the other's public CA, if that is here.
trust() {
  local peer
  peer=$(other "$1")
  if [ -e "$dir/$peer/public-ca.crt" ]; then
    cp "$dir/$peer/public-ca.crt" "$scratch/peer-ca.crt"
    mv "$scratch/peer-ca.crt" "$dir/$1/peer-ca.crt"
  fi
  if [ ! -e "$dir/$1/peer-ca.crt" ]; then
    say "missing: the CA of the $peer's side. Ask its people for their public-ca.crt (never for a key), put it into $dir/$1/peer-ca.crt and run this again."
  fi
  say "to hand over to the $peer's side: $dir/$1/public-ca.crt, and nothing else of $dir/$1"
}

# ---- one side, or all -----------------------------------------------------------------

uri() { echo "spiffe://$trust_domain/slicefeed/$1"; }

inventory() {
  ensure_ca inventory
  issue inventory inventory serverAuth "URI:$(uri inventory),DNS:${dns//,/,DNS:}"
}

writer() {
  ensure_ca writer
  issue writer writer clientAuth "URI:$(uri writer),DNS:slicefeed-writer"
}

operator() {
  [ -e "$dir/writer/ca.key" ] ||
    die "$dir/writer/ca.key is not here: the inventory asks every caller for a certificate of the writer's CA, so run this where that is kept"
  issue operator writer clientAuth "URI:$(uri operator),DNS:slicefeed-operator"
  if [ -e "$dir/inventory/public-ca.crt" ]; then
    cp "$dir/inventory/public-ca.crt" "$dir/operator/peer-ca.crt"
  elif [ -e "$dir/writer/peer-ca.crt" ]; then
    cp "$dir/writer/peer-ca.crt" "$dir/operator/peer-ca.crt"
  else
    say "missing: the CA of the inventory's side. Put its public-ca.crt into $dir/operator/peer-ca.crt."
  fi
  say "the inventory's list of allowed clients must have the SAN $(uri operator), with the role operator"
}

# ---- replacing a CA ---------------------------------------------------------------------

next_ca() {
  local at=$dir/$1
  [ -e "$at/ca.key" ] || die "$at has no CA yet: certificates.sh $1 $dir makes one"
  [ ! -e "$at/next-ca.key" ] || die "$at/next-ca.crt is there already: the next step is switch-ca"
  [ ! -e "$at/old-ca.crt" ] || die "$at/old-ca.crt is still trusted: finish the last replacement with drop-ca first"
  make_ca "$1" next-ca
  cat "$at/ca.crt" "$at/next-ca.crt" >"$scratch/public-ca.crt"
  mv "$scratch/public-ca.crt" "$at/public-ca.crt"
}

switch_ca() {
  local at=$dir/$1
  [ -e "$at/next-ca.key" ] || die "$at has no next-ca.crt: the first step is next-ca"
  mv "$at/ca.crt" "$at/old-ca.crt"
  mv "$at/next-ca.crt" "$at/ca.crt"
  mv "$at/next-ca.key" "$at/ca.key" # the old key signs nothing any more
  say "signing with the new CA; the old one is trusted until drop-ca"
}

drop_ca() {
  local at=$dir/$1
  [ -e "$at/old-ca.crt" ] || die "$at has no old-ca.crt: the steps before are next-ca and switch-ca"
  cp "$at/ca.crt" "$scratch/public-ca.crt"
  mv "$scratch/public-ca.crt" "$at/public-ca.crt"
  rm "$at/old-ca.crt"
}

# ---- the commands -------------------------------------------------------------------------

# A path with a quote in it is quoted as the shell wants it.
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

apply() { # kubectl's words before "create", and after it; an object that is there is updated
  echo "kubectl $1 create $2 --dry-run=client -o yaml | kubectl $1 apply --server-side -f -"
}

commands() { # side, context, namespace
  local at=$dir/$1 flags="--context $2 --namespace $3"
  echo "# Into the cluster $2: key and certificate of the $1, and the CA of the other side."
  apply "--context $2" "namespace $3"
  apply "$flags" "secret tls slicefeed-$1-tls --cert=$(quoted "$at/tls.crt") --key=$(quoted "$at/tls.key")"
  [ ! -e "$at/peer-ca.crt" ] || apply "$flags" "configmap slicefeed-$1-peer-ca --from-file=ca.crt=$(quoted "$at/peer-ca.crt")"
}

commands_of() {
  case $1 in
    inventory) commands inventory "$secured" "$inventory_namespace" ;;
    writer) commands writer "$consuming" "$writer_namespace" ;;
  esac
}

case $step in
  next-ca) next_ca "$side" ;;
  switch-ca)
    switch_ca "$side"
    "$side"
    [ "$side" = inventory ] || [ ! -e "$dir/operator/tls.crt" ] || operator
    ;;
  drop-ca) drop_ca "$side" ;;
esac

if [ -n "$step" ]; then
  peer=$(other "$side")
  if [ "$step" = switch-ca ]; then
    commands_of "$side"
  elif [ -d "$dir/$peer" ]; then
    trust "$peer"
    commands_of "$peer"
  else
    say "to hand over to the $peer's side, which puts it in place of its peer-ca.crt: $dir/$side/public-ca.crt"
  fi
  exit
fi

case $side in
  inventory | writer)
    "$side"
    trust "$side"
    commands_of "$side"
    ;;
  operator) operator ;;
  all)
    inventory
    writer
    trust inventory
    trust writer
    operator
    commands_of inventory
    commands_of writer
    ;;
esac
if [ -e "$dir/inventory/tls.key" ] && [ -e "$dir/writer/tls.key" ]; then
  say "the keys of both sides are in $dir: whoever reads it can pose as either. Good for a try; else let each side run this for itself, and hand over its public-ca.crt."
fi
say "the ca.key files sign: keep them where neither cluster can read them"
