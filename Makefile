# Everything runs with Go, gcc, git and make. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# The Go modules, each in the folder of its name: the product, the test cluster and its tests, what makes artifacts, and what measures.
MODULES = . e2e tools bench
# The programs, the tests and what makes artifacts are compiled in one way, so that the libraries of all are compiled once: without cgo, which
# only the race detector needs (RACING), and without paths.
export CGO_ENABLED = 0
# "certified" builds programs, image and bundle with a validated Go Cryptographic Module: docs/image.md. Tools are compiled as ever.
GOFIPS140 ?= off
unexport GOFIPS140
# Shows how far the compilation of the program is, and becomes the program.
LOCAL = cd tools && go run -trimpath ./cmd/run ../bin/local ./cmd/local
# Prints where the binaries of the test cluster are, and builds them before.
ASSETS = go -C '$(CURDIR)/tools' run -trimpath ./cmd/run ../bin/local ./cmd/local assets
LINT = go tool -modfile=.golangci.mod golangci-lint
ACTIONLINT = go tool -modfile=.actionlint.mod actionlint
VULNCHECK = go tool -modfile=.vulncheck.mod govulncheck
# Runs the tests of a target, states what they cost, and runs a test with a cluster that failed once more, alone: tools/suite, whose
# table.go has what each target runs. BUDGET=1 fails over the budget of CPU time; FLAGS are added to those of go test, such as -parallel=1.
SUITE = cd tools && go run -trimpath ./cmd/suite $(if $(BUDGET),--budget)

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/opgate and bin/opgate-server; GOFIPS140=certified, here and below, for FIPS 140-3 mode
	GOFIPS140='$(GOFIPS140)' go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/ ./cmd/opgate ./cmd/opgate-server

.PHONY: site
site: ## Render the documents as static pages into bin/site, with a search that needs no server; SITE_FLAGS=--help lists flags
	cd tools && go run ./cmd/site $(SITE_FLAGS)

.PHONY: man
man: ## Write the man pages of the commands into bin/man
	for program in opgate opgate-server; do go run -ldflags "-X main.version=$(VERSION)" ./cmd/$$program man bin/man; done

# What images and their lists of contents say of themselves. The commit's time makes the digest depend on the commit, not on the day.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
IMAGE = cd tools && go run ./cmd/image
IMAGE_FLAGS = --version='$(VERSION)' --fips140='$(GOFIPS140)' --revision="$$(git rev-parse HEAD 2>/dev/null || true)" --created=$(SOURCE_DATE_EPOCH) \
	$(if $(PLATFORMS),--platform='$(PLATFORMS)')

.PHONY: image
image: ## Build the container image into bin/image, without a container engine; PUSH=registry/repository:tag pushes it, ARCHIVE=file is for "docker load", BASE=scratch needs no registry
	@$(IMAGE) build $(IMAGE_FLAGS) --layout='$(CURDIR)/bin/image' \
		$(if $(BASE),--base='$(BASE)') $(if $(ARCHIVE),--archive='$(abspath $(ARCHIVE))') $(if $(PUSH),--push='$(PUSH)')

.PHONY: sbom
sbom: ## List the Go modules in the image's binaries in bin/opgate-server.spdx.json
	@$(IMAGE) sbom $(IMAGE_FLAGS) --output='$(CURDIR)/bin/opgate-server.spdx.json'

.PHONY: bundle
bundle: ## Make a bundle for OLM and a catalog with it in bin/bundle; VERSION, REPLACES, OPGATE_IMAGE, BUNDLE_IMAGE and OLM_IDENTITY say of what and for whom
	@cd tools && go run ./cmd/bundle --output='$(CURDIR)/bin/bundle' $(if $(filter command line environment,$(origin VERSION)),--version='$(VERSION:v%=%)') \
		$(if $(REPLACES),--replaces='$(REPLACES:v%=%)') $(if $(OPGATE_IMAGE),--image='$(OPGATE_IMAGE)') \
		$(if $(BUNDLE_IMAGE),--bundle-image='$(BUNDLE_IMAGE)') --fips140='$(GOFIPS140)' $(if $(OLM_IDENTITY),--olm-identity='$(OLM_IDENTITY)')

# A version that is given, on the command line or by the environment; otherwise the tag of the commit, see tools/cmd/release.
RELEASE_VERSION = $(if $(filter-out file,$(origin VERSION)),--version='$(VERSION)')

.PHONY: release-dry-run
release-dry-run: ## Build and sign everything of a release into bin/release, and publish nothing; KEY=file signs with a private key, BASE=scratch needs no registry
	@cd tools && go run ./cmd/release build --dir='$(CURDIR)/bin/release' --created=$(SOURCE_DATE_EPOCH) $(RELEASE_VERSION) \
		$(if $(PLATFORMS),--platform='$(PLATFORMS)') $(if $(TARGETS),--target='$(TARGETS)') $(if $(BASE),--base='$(BASE)') \
		$(if $(KEY),--key='$(abspath $(KEY))') $(if $(BUILDER),--builder='$(BUILDER)')

.PHONY: test
test: ## Run everything that a change of the product can break: units, beside a real API server and OLM (built from source the first time); BUDGET=1 fails over the budget of CPU time
	@$(SUITE) test $(FLAGS)

.PHONY: test-unit
test-unit: ## Run the tests that need no API server
	@$(SUITE) test-unit $(FLAGS)

.PHONY: test-e2e
test-e2e: ## Run the tests of the product against a real API server
	@$(SUITE) test-e2e $(FLAGS)

.PHONY: test-install
test-install: ## Test packaging: chart, image, release, bundle, platforms, upgrades; long sequences and hostile sizes; and the harness and tools themselves
	@$(SUITE) test-install $(FLAGS)

.PHONY: test-all
test-all: test test-install test-long ## Run all tests, the long forms of generated ones included, and the mutation check

.PHONY: test-long
test-long: mutation ## Run what CI leaves out, the long forms of generated tests, and the mutation check
	@$(SUITE) test-long $(FLAGS)

.PHONY: test-race
test-race: ## Run units and tests with clusters with the race detector in all packages
	@$(SUITE) test-race $(FLAGS)

.PHONY: mutation
mutation: ## Replace each rule's judge by "allow", and fail if no test notices
	cd tools && go run ./cmd/mutation

.PHONY: matrix
matrix: ## Run the same tests on several versions of Kubernetes and OLM, built from source, and write docs/compatibility.md; ROWS=kubernetes-1.32-olm-0.42,kubernetes-1.36-olm-0.28 runs some
	cd tools && go run ./cmd/matrix $(if $(ROWS),--row='$(ROWS)')

.PHONY: bench
bench: ## Measure what a review costs, relative to servers that do less, and print which goals are met; BENCH_FLAGS=--help lists flags; report in bin/bench.json
	@mkdir -p bin
	cd bench && go run ./cmd/bench --revision='$(VERSION)' --json='$(CURDIR)/bin/bench.json' $(BENCH_FLAGS)

.PHONY: scale
scale: ## Measure Opgate with 100, 1,000 and 10,000 namespaces on real API servers (about an hour); SCALE_FLAGS=--help lists flags; report and plots in bin/scale.json and .svg
	@mkdir -p bin
	cd bench && assets="$$($(ASSETS))" && export KUBEBUILDER_ASSETS="$$assets" && \
		go run ./cmd/scale --revision='$(VERSION)' --json='$(CURDIR)/bin/scale.json' --svg='$(CURDIR)/bin/scale.svg' $(SCALE_FLAGS)

.PHONY: microbench
microbench: ## Run the Go benchmarks of judging, of the request path, and of approvals on a real API server, with their floors
	go test -run '^$$' -bench . -benchmem ./rules/... ./admission ./snapshot ./controller/... ./cmd/opgate/check
	cd e2e && assets="$$($(ASSETS))" && export KUBEBUILDER_ASSETS="$$assets" && \
		go test -run '^$$' -bench Approval -benchtime 200x ./loop

.PHONY: demo
demo: ## See the gate refuse and admit real kubectl commands on a local API server; with OLM=1, install and upgrade with a real OLM
	@$(LOCAL) demo $(if $(OLM),--olm)

.PHONY: up
up: ## Start the same control plane and gate and keep them; with OLM=1, with OLM and a catalog; with INSTALL=1, without the gate, to install it with helm; kubeconfig in .local/kubeconfig
	@$(LOCAL) up $(if $(OLM),--olm) $(if $(INSTALL),--install)

.PHONY: down
down: ## Stop what `make up` started
	@$(LOCAL) down

.PHONY: lint
lint: ## Check words, sizes (internal/vocabulary, internal/ceilings) and that CI shows every threat and requirement, and run actionlint and golangci-lint (built from their modules the first time)
	go test -trimpath -count=1 ./internal/vocabulary ./internal/ceilings
	go test -trimpath -ldflags=-s -vet=off -count=1 -run 'Rows' ./docs
	$(ACTIONLINT)
	$(LINT) run ./...
	for module in $(filter-out .,$(MODULES)); do \
		(cd "$$module" && $(subst -modfile=,-modfile=../,$(LINT)) run --config ../.golangci.yaml ./...); \
	done

.PHONY: vulncheck
vulncheck: ## Report known vulnerabilities that the programs can reach; VULNDB=file:///directory uses a local copy of the database
	$(VULNCHECK) $(if $(VULNDB),-db '$(VULNDB)') ./...

.PHONY: generate
generate: ## Generate deep copies, CRDs and the reference of their fields, and render manifests from the Helm chart
	go tool controller-gen object paths=./api/...
	go tool controller-gen crd paths=./api/... output:crd:artifacts:config=manifests/crd
	cd tools && go run ./cmd/render

.PHONY: verify
verify: generate ## Generate and format everything and fail if that changes the tree
	gofmt -l -w $$(git ls-files '*.go')
	for module in $(MODULES); do (cd "$$module" && go mod tidy); done
	@git diff --exit-code && test -z "$$(git status --porcelain)" || { echo "the tree is not clean: commit what 'make verify' wrote"; git status --short; exit 1; }

.PHONY: clean
clean: ## Remove what was built here
	rm -rf bin
