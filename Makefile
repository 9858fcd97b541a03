# Everything runs with Go, gcc, git and make. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# With the flags of the opgate that it starts, so that the libraries of both are compiled once.
LOCAL = cd e2e && CGO_ENABLED=0 go run -trimpath ./cmd/local
LINT = go tool -modfile=.golangci.mod golangci-lint
ACTIONLINT = go tool -modfile=.actionlint.mod actionlint
VULNCHECK = go tool -modfile=.vulncheck.mod govulncheck
# Repeats the output of failed tests at the end, after everything else (docs/decisions/2026-11-22-gotestsum.md).
GOTESTSUM = go tool -modfile='$(CURDIR)/.gotestsum.mod' gotestsum --format-icons=text --format-hide-empty-pkg --hide-summary=skipped

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/opgate
	CGO_ENABLED=0 go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/opgate ./cmd/opgate

.PHONY: man
man: ## Write the man pages of the commands into bin/man
	go run -ldflags "-X main.version=$(VERSION)" ./cmd/opgate man bin/man

# What images and their lists of contents say of themselves. The commit's time makes the digest depend on the commit, not on the day.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGE = cd e2e && go run ./cmd/image
IMAGE_FLAGS = --version='$(VERSION)' --revision="$$(git rev-parse HEAD 2>/dev/null || true)" --created=$(SOURCE_DATE_EPOCH) \
	$(if $(PLATFORMS),--platform='$(PLATFORMS)')

.PHONY: image
image: ## Build the container image into bin/image, without a container engine; PUSH=registry/repository:tag pushes it, ARCHIVE=file is for "docker load", BASE=scratch needs no registry
	@$(IMAGE) build $(IMAGE_FLAGS) --layout='$(CURDIR)/bin/image' \
		$(if $(BASE),--base='$(BASE)') $(if $(ARCHIVE),--archive='$(abspath $(ARCHIVE))') $(if $(PUSH),--push='$(PUSH)')

.PHONY: sbom
sbom: ## List the Go modules in the image's binaries in bin/opgate.spdx.json
	@$(IMAGE) sbom $(IMAGE_FLAGS) --output='$(CURDIR)/bin/opgate.spdx.json'

.PHONY: bundle
bundle: ## Make a bundle for OLM and a catalog with it in bin/bundle; VERSION, REPLACES, OPGATE_IMAGE, BUNDLE_IMAGE and OLM_IDENTITY say of what and for whom
	@cd e2e && go run ./cmd/bundle --output='$(CURDIR)/bin/bundle' $(if $(filter command line environment,$(origin VERSION)),--version='$(VERSION:v%=%)') \
		$(if $(REPLACES),--replaces='$(REPLACES:v%=%)') $(if $(OPGATE_IMAGE),--image='$(OPGATE_IMAGE)') \
		$(if $(BUNDLE_IMAGE),--bundle-image='$(BUNDLE_IMAGE)') $(if $(OLM_IDENTITY),--olm-identity='$(OLM_IDENTITY)')

# A version that is given, on the command line or by the environment; otherwise the tag of the commit, see e2e/cmd/release.
RELEASE_VERSION = $(if $(filter-out file,$(origin VERSION)),--version='$(VERSION)')

.PHONY: release-dry-run
release-dry-run: ## Build and sign everything of a release into bin/release, and publish nothing; KEY=file signs with a private key, BASE=scratch needs no registry
	@cd e2e && go run ./cmd/release build --dir='$(CURDIR)/bin/release' --created=$(SOURCE_DATE_EPOCH) $(RELEASE_VERSION) \
		$(if $(PLATFORMS),--platform='$(PLATFORMS)') $(if $(TARGETS),--target='$(TARGETS)') $(if $(BASE),--base='$(BASE)') \
		$(if $(KEY),--key='$(abspath $(KEY))') $(if $(BUILDER),--builder='$(BUILDER)')

.PHONY: test
test: test-unit test-e2e ## Run every test: units with the race detector, then a real API server (built from source the first time)

.PHONY: test-unit
test-unit: ## Run the tests that need no API server
	@echo "==> go vet (the first build of the libraries takes a minute or two)"
	go vet ./...
	@echo "==> unit tests with the race detector"
	$(GOTESTSUM) --format=pkgname -- -race -shuffle=on $$(go list ./... | grep -v $(WITHOUT_RACE:./%=-e '/opgate/%$$'))
	$(GOTESTSUM) --format=pkgname -- -shuffle=on $(WITHOUT_RACE)

# The packages that read texts, or evaluate expressions by the API server's own code: they start no goroutine, and take minutes with the race
# detector.
WITHOUT_RACE = ./docs ./internal/vocabulary ./rules/backstop

.PHONY: test-e2e
test-e2e: ## Run the tests against a real API server
	@echo "==> end-to-end tests: a real API server, etcd, kubectl and OLM, and the gate as its own process"
	cd e2e && go vet ./...
	cd e2e && assets="$$(go run ./cmd/local assets --olm --install)" && export KUBEBUILDER_ASSETS="$$assets" && \
		export OPGATE_E2E_RIGHTS="$$(mktemp -d)" && trap 'rm -rf "$$OPGATE_E2E_RIGHTS"' EXIT && \
		$(GOTESTSUM) --format=pkgname -- $(E2E_FLAGS) $$(go list ./... | grep -v $(E2E:%=-e '/e2e/%$$')) && \
		echo "==> tests with clusters, each shown when it ends (compiling them takes minutes the first time)" && \
		$(GOTESTSUM) --format=testname -- $(E2E_FLAGS) $(filter-out $(E2E_RACE),$(E2E:%=./%)) && \
		$(GOTESTSUM) --format=testname -- -race $(E2E_FLAGS) $(E2E_RACE) && \
		go run ./cmd/rights "$$OPGATE_E2E_RIGHTS"

# The packages of tests with clusters, the longest first. Each runs alone as well: cd e2e && go test ./loop
E2E = loop gate install dependency conversion

# Those that run controllers in the process of the test, and so with the race detector. In the others Opgate is a process of its own.
E2E_RACE = ./dependency

# As many tests with a cluster run together, over all packages, as the machine carries (e2e/internal/speed); -parallel=N says it instead.
# The timeout is for a machine several times slower than usual.
E2E_FLAGS = -shuffle=on -count=1 -timeout 75m

.PHONY: matrix
matrix: ## Run the same tests on several versions of Kubernetes and OLM, built from source, and write docs/compatibility.md; ROWS=kubernetes-1.32,olm-0.28 runs some
	cd e2e && go run ./cmd/matrix $(if $(ROWS),--row='$(ROWS)')

.PHONY: bench
bench: ## Measure what a review costs, relative to servers that do less, and print which goals are met; BENCH_FLAGS=--help lists flags; report and plot in bin/bench.json and .svg
	@mkdir -p bin
	cd e2e && go run ./cmd/bench --revision='$(VERSION)' --json='$(CURDIR)/bin/bench.json' --svg='$(CURDIR)/bin/bench.svg' $(BENCH_FLAGS)

.PHONY: scale
scale: ## Measure Opgate with 100, 1,000 and 10,000 namespaces on real API servers (about an hour); SCALE_FLAGS=--help lists flags; report and plots in bin/scale.json and .svg
	@mkdir -p bin
	cd e2e && assets="$$(go run ./cmd/local assets)" && export KUBEBUILDER_ASSETS="$$assets" && \
		go run ./cmd/scale --revision='$(VERSION)' --json='$(CURDIR)/bin/scale.json' --svg='$(CURDIR)/bin/scale.svg' $(SCALE_FLAGS)

.PHONY: microbench
microbench: ## Run the Go benchmarks of judging, of the request path, and of approvals, conversion and ordering on a real API server, with their floors
	go test -run '^$$' -bench . -benchmem ./rules/... ./admission ./snapshot ./controller/... ./cmd/opgate/check
	cd e2e && assets="$$(go run ./cmd/local assets)" && export KUBEBUILDER_ASSETS="$$assets" && \
		go test -run '^$$' -bench Approval -benchtime 200x ./loop && \
		go test -p 1 -run '^$$' -bench 'ConversionList|DependencyChain' -benchtime 1x ./conversion ./dependency

.PHONY: demo
demo: ## See the gate refuse and admit real kubectl commands on a local API server; with OLM=1, install and upgrade with a real OLM
	@echo "==> compiling the demo (a minute or two the first time)"
	@$(LOCAL) demo $(if $(OLM),--olm)

.PHONY: up
up: ## Start the same control plane and gate and keep them; with OLM=1, with OLM and a catalog; kubeconfig in .local/kubeconfig
	@echo "==> compiling the local control plane (a minute or two the first time)"
	@$(LOCAL) up $(if $(OLM),--olm)

.PHONY: down
down: ## Stop what `make up` started
	@$(LOCAL) down

.PHONY: lint
lint: ## Reject phrases that are not of the field (internal/vocabulary), and run actionlint and golangci-lint (built from their modules the first time)
	go test -count=1 ./internal/vocabulary
	$(ACTIONLINT)
	$(LINT) run ./...
	cd e2e && $(subst -modfile=,-modfile=../,$(LINT)) run --config ../.golangci.yaml ./...

.PHONY: vulncheck
vulncheck: ## Report known vulnerabilities that bin/opgate can reach; VULNDB=file:///directory uses a local copy of the database
	$(VULNCHECK) $(if $(VULNDB),-db '$(VULNDB)') ./...

.PHONY: generate
generate: ## Generate deep copies and CRDs, and render manifests from the Helm chart
	go tool controller-gen object paths=./api/...
	go tool controller-gen crd paths=./api/... output:crd:artifacts:config=manifests/crd
	cd e2e && go run ./cmd/render

.PHONY: verify
verify: generate ## Generate and format everything and fail if that changes the tree
	gofmt -l -w $$(git ls-files '*.go')
	go mod tidy
	cd e2e && go mod tidy
	@git diff --exit-code && test -z "$$(git status --porcelain)" || { echo "the tree is not clean: commit what 'make verify' wrote"; git status --short; exit 1; }

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin
