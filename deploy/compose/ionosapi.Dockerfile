# The emulator of the IONOS Cloud API, from a binary built outside: nothing is pulled.
#
#   CGO_ENABLED=0 go build -o deploy/compose/bin/ ./lab/cmd/ionosapi
FROM scratch
COPY bin/ionosapi /ionosapi
USER 65534:65534
ENTRYPOINT ["/ionosapi"]
