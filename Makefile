# Slicefeed. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := $(CURDIR)/.bin
export PATH := $(BIN):$(PATH)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
STAMP := -X main.version=$(VERSION)

# grpc's tracing pages are templates, and a template has the linker keep every method there is: without the
# tag a binary is 50% larger. Tests and lint have it too, so that what imports grpc is compiled once.
# vet is left to golangci-lint, which runs it on the same packages with more checks.
export GOFLAGS := $(strip $(GOFLAGS) $(filter-out $(GOFLAGS),-tags=grpcnotrace -vet=off))

# Otherwise each test binary with the race detector sleeps for a second at its end.
export GORACE ?= atexit_sleep_ms=0

# Property tests draw the same inputs each time, so that no change fails by chance; each night they draw new ones (0).
export RAPID_SEED ?= 1

# The tests of each package belong to one of three parts: what is listed neither here nor there is `make unit`.
# The packages of `make e2e` start real kube-apiservers, each its own: three at a time, those that take longest first. The
# last one measures times, so it runs alone.
E2E := ./lab/e2e/apis ./lab/e2e/leader ./lab/e2e/sources ./lab/e2e/outages ./lab/e2e/services ./lab/e2e/migration ./lab/e2e/attack ./lab/charts ./lab/e2e/bounds
# Packages that only `make verify` runs.
VERIFY := ./lab/verify/...
# Packages that leave out the race detector are `make worlds`. In sim and search one goroutine plays each world;
# hostile measures memory, and the detector has its own. Races between the goroutines
# that hostile peers reach are looked for in lab/sim/link, in the tests of services, and in `make e2e`.
WORLDS := ./lab/hostile ./lab/search ./lab/sim ./lab/sim/oracle

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# ---- the main job ---------------------------------------------------------------

.PHONY: demo
demo: build upstream ## Show the main job step by step, on real parts (KEEP=1 leaves it up)
	@lab demo $(if $(KEEP),--keep)

.PHONY: up
up: ## Bring up both sides in containers, or what has changed of them (Docker; docs/start/compose.md)
	@deploy/compose/up

.PHONY: down
down: ## Remove all that make up has made
	@deploy/compose/down

.PHONY: images
images: ## Build the two images from here, without pulling anything (Docker)
	@deploy/images/build ghcr.io/slicefeed/slicefeed- $(VERSION)

.PHONY: quick
quick: ## Build and test services without the race detector; in seconds, since Go caches what has not changed
	@go test ./services/... ./services/endpointslices/...

.PHONY: test
test: ## Run every test that needs nothing more: unit tests, simulated worlds, the pair on real control planes, checks
	@tools/steps unit worlds e2e check

.PHONY: bench
bench: build upstream ## Measure against baselines of the same run, into .bin/bench.txt: 10 min (ONLY=propagation,fanout QUICK=1)
	@lab bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)

.PHONY: verify
verify: ## The longer gate, run before a release: make test, and all that is below it here
	@tools/steps test fuzz oldest races kubernetes load faults mutants outside

.PHONY: oldest
oldest: tools build ## make e2e on API servers of the oldest Kubernetes that is supported, endpointslices with its client-go
	@GOWORK=off go -C services/endpointslices test ./...
	@SLICEFEED_KUBERNETES=oldest tools/gotest -count=1 -p 2 -timeout 25m $(E2E)

.PHONY: races
races: tools build race upstream ## The end-to-end tests of the gate and all others, with the race detector, each fault at its real pace
	@tools/previous
	@SLICEFEED_RACE=1 SLICEFEED_LONG=1 tools/gotest -race -count=1 -p 2 -timeout 60m $(E2E) ./lab/verify/people ./lab/verify/targets

.PHONY: kubernetes
kubernetes: build upstream ## Kubernetes' controllers, kube-proxy, CoreDNS; charts and runbooks on nodes with containerd; the first time 20 min more
	@lab build kubelet kube-controller-manager kube-scheduler kube-proxy coredns proxychoice cert-manager trust-manager >/dev/null
	@tools/build . charts
	@tools/node
	@SLICEFEED_VERIFY=1 tools/gotest -count=1 -p 1 -timeout 25m -run 'KubernetesControllers|GarbageCollector|NamespaceController|KubeProxy|CoreDNS|BothChartsInstalled|Runbooks|CertManager|Umbrella|OutputsAreCompared|ServiceImport' ./lab/verify/kubernetes ./lab/verify/charts ./lab/verify/consumers

.PHONY: load
load: build ## Load and abuse: 5,000 nodes, 1,000 subscribers and attackers at the inventory; deaths of real backends at the prober
	@SLICEFEED_LOAD=1 go test -p 1 -count=1 -v -timeout 15m ./lab/load ./lab/probes

.PHONY: faults
faults: build upstream ## Each kind of real fault, with a client that must lose nothing; figures in .bin/faults.md (ONLY=certificates)
	@tools/faults '$(ONLY)'

# ---- tests of the tests, and worlds without end -----------------------------------

.PHONY: mutants
mutants: build ## Inject deliberate bugs, and list in .bin/mutants.txt which test catches each
	@lab mutants

.PHONY: fuzz
fuzz: ## Run each fuzz target for a while, and keep what fails (FUZZTIME=20s)
	@FUZZTIME=$(or $(FUZZTIME),20s) tools/fuzz

.PHONY: soak
soak: ## Simulated worlds, as many as one likes (SEEDS=50000, FROM=1)
	SLICEFEED_SEEDS=$(or $(SEEDS),50000) SLICEFEED_FROM=$(or $(FROM),1) go test -count=1 -v -timeout 0 -run TestWorlds ./lab/sim

.PHONY: sim
sim: ## Print the story of one simulated run (SEED=1)
	@SLICEFEED_SEED=$(or $(SEED),1) go test -count=1 -v -timeout 5m -run TestReplay ./lab/sim

# ---- a release ------------------------------------------------------------------

.PHONY: release-dry-run
release-dry-run: ## Make a release of this commit in a clone, all but the pushing
	@tools/build . charts release
	@tools/engine tools/release/dry-run

.PHONY: outside
outside: tools build race upstream ## What needs a Docker engine, Chromium, Prometheus or goreleaser; it gets those that it can
	@tools/build monitoring release
	@tools/debian chromium
	@SLICEFEED_VERIFY=1 tools/engine go test -count=1 -p 1 -v -timeout 120m ./lab/monitoring/... ./lab/browser/... ./lab/stack/... ./lab/release/...

# ---- the tests, apart -----------------------------------------------------------

.PHONY: unit
unit: tools ## Unit tests, with the race detector where goroutines meet (of one package: PKG=./services/writer/verdict RUN=Floor)
	@$(if $(PKG),tools/gotest -race -count=1 -run '$(RUN)' $(PKG),tools/unit $(WORLDS) $(E2E) $(VERIFY))

.PHONY: worlds
worlds: ## 500 simulated worlds, every short history of small ones, hostile peers; no race detector
	@go test -count=1 -timeout 15m $(WORLDS)

.PHONY: e2e
e2e: tools build upstream ## The pair on real kube-apiservers and etcd
	@tools/previous
	@tools/gotest -count=1 -p 3 -timeout 15m $(filter-out %/bounds,$(E2E))
	@tools/gotest -count=1 -timeout 15m $(filter %/bounds,$(E2E))

.PHONY: check
check: tools ## Formatting, lint, contract, generated code, charts
	@tools/check

# ---- what they need -------------------------------------------------------------

# No -trimpath and no CGO_ENABLED=0 here: either would compile every dependency once more
# than tests and lint do already. Release builds have both.
.PHONY: build
build: ## Build both components, the kubectl plugin and the lab into .bin/
	@mkdir -p $(BIN)
	@echo "building slicefeed-inventory (the first time with client-go and the IONOS SDK: some minutes)"
	@go build -ldflags '$(STAMP)' -o $(BIN)/slicefeed-inventory ./services/inventory
	@echo "building slicefeed-writer"
	@go build -ldflags '$(STAMP)' -o $(BIN)/slicefeed-writer ./services/writer
	@echo "building the kubectl plugin"
	@go build -ldflags '$(STAMP)' -o $(BIN)/kubectl-slicefeed ./services/kubectl-slicefeed
	@echo "building the lab"
	@go build -o $(BIN)/ ./lab/cmd/... ./examples/...

.PHONY: race
race: ## Build both components with the race detector into .bin/race/, for the end-to-end tests
	@mkdir -p $(BIN)/race
	@echo "building both components with the race detector (some minutes the first time)"
	@go build -race -ldflags '$(STAMP)' -o $(BIN)/race/slicefeed-inventory ./services/inventory
	@go build -race -ldflags '$(STAMP)' -o $(BIN)/race/slicefeed-writer ./services/writer

.PHONY: upstream
upstream: build ## Build kube-apiserver, etcd and kubectl once, from their Go modules
	@lab build

.PHONY: tools
tools: ## Build the pinned developer tools into .bin/
	@tools/build . charts

.PHONY: generate
generate: tools ## Regenerate code, the tables in the docs, the charts' schemas and plain manifests
	@rm -rf gen/slicefeed
	@buf generate
	@go test ./services/internal/settings ./services/inventory/app ./services/writer/app -run 'Settings|Metrics' -update >/dev/null
	@go test ./services/writer/targets ./services/inventory/app ./services/writer/app ./services/internal/report -run 'Annotations|CommandLine|Advice' -update >/dev/null
	@go test -p 1 ./services/internal/preflight ./services/inventory/report ./services/writer/report -run AsJSON -update >/dev/null
	@go test ./lab/chartdocs -run TestREADMEsHave -update >/dev/null
	@tools/manifests

.PHONY: clean
clean: ## Remove what was built here; the cache of upstream programs stays
	@rm -rf $(BIN)
