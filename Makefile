# Every target is a line that a person could type.

GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
ACTIONLINT = go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 -shellcheck= -pyflakes=

# What npm installs for the tests: Azurite, the packages of the samples of docs/senders.md and what verifies signatures,
# and axe-core.
AZURITE = handler/tools/azurite/node_modules/.installed
SAMPLES = handler/tools/quickstart/node_modules/.installed
AXE = handler/tools/browser/node_modules/.installed

.PHONY: help build demo run start test test-plain test-race test-browser test-worker test-long test-func check faults \
	faults-short faults-long world world-long planted bench size vuln format package release deploy azure-smoke \
	azurite npm needs-go needs-func needs-node needs-chromium

# Only test-func and test-worker set it: from the environment, it would leave out scenarios of the other targets.
unexport E2E_HOST

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# Ctrl-C at a terminal must end neither make nor go run, which would report a failure: the program is a job of its own.
job = program=$$(mktemp) && go build -o $$program $(1) && \
	bash -c "[ ! -t 0 ] || set -m; $$program $(2); exit \$$?"; code=$$?; rm -f $$program; exit $$code

build: needs-go ## build the executable and stage the app in dist
	go run ./handler/tools/stage

demo: build ## deliver messages on this machine and show what happened; dist/async-caller demo --stay stays up
	dist/async-caller demo

run: $(AZURITE) build ## the same closer to Azure (Azurite, local host); your app in dist then stays up until Ctrl-C
	@$(call job,./handler/tools/demo,-stay)

azurite: $(AZURITE) ## run Azurite on its standard ports, for make start; it keeps its data in .azurite
	@$(call job,./handler/tools/azurite/cmd)

start: needs-go needs-func ## func start in dist (needs Azure Functions Core Tools and Azurite)
	$(MAKE) build
	cd dist && func start

# The race detector makes a test ten times slower. It finds nothing in packages without goroutines, nor in tests of
# executables, which are built without it. The goroutines of delivery, sight and commands are also those of ingress,
# work and operation, whose tests it sees. The tests of executables, of which e2e takes longest, wait more than they
# compute: the others run beside them, and give way to them. test-browser has those that need Chromium.
race_free = internal/plain/ internal/rules/ operate/message app/config app/functionapp gates/admission \
	deliver/delivery observers/sight program/cli tools/e2e tools/quickstart tools/simulation tools/stage tools/world \
	handler$$
select = grep $(1) $(foreach package,$(race_free),-e '/$(package)')
gotest = xargs go test -shuffle=on -count=1 -timeout 10m -parallel 8

test: $(AZURITE) $(SAMPLES) ## run all tests but test-browser, Azurite included (3 minutes, 5 with the first build)
	$(MAKE) -j 2 --output-sync test-plain test-race

test-plain: needs-go
	go list ./handler/tools/e2e ./... | $(call select) | $(gotest)

test-race: needs-go
	go list ./... | grep -v /tools/browser | $(call select,-v) | nice $(gotest) -race

test-browser: needs-go needs-chromium $(AZURITE) $(AXE) ## test the console in chromium
	go test -count=1 -timeout 15m ./handler/tools/browser/...

test-worker: $(AZURITE) ## the scenarios of e2e in a worker (2 minutes)
	E2E_HOST=work go test -count=1 -timeout 10m -parallel 8 ./handler/tools/e2e

test-long: $(AZURITE) $(SAMPLES) ## tests of many messages, memory and releases, more schedules of faults (20 minutes)
	go test -tags long -count=1 -timeout 30m ./handler/tools/e2e ./handler/tools/simulation ./handler/tools/stage \
		./handler/tools/quickstart
	go test -count=1 -timeout 30m ./handler/internal/operate/run -stride 13

# One at a time, because the first one downloads the extension bundle.
test-func: needs-go needs-func $(AZURITE) ## the scenarios of e2e on the host of Core Tools (40 minutes)
	E2E_HOST=func go test -count=1 -timeout 90m -parallel 1 ./handler/tools/e2e

check: needs-go needs-chromium ## what CI runs: formatting, tidiness, lint, all tests, a short run of faults
	go mod tidy -diff
	go mod verify
	go vet -tags long ./handler/tools/e2e ./handler/tools/simulation ./handler/tools/stage ./handler/tools/quickstart
	GOOS=darwin go vet ./handler ./handler/internal/...
	GOOS=windows go vet ./handler ./handler/internal/... # the tools need Linux or macOS
	go run ./handler/tools/world/planted
	$(GOLANGCI_LINT) config verify
	$(GOLANGCI_LINT) fmt --diff
	$(GOLANGCI_LINT) run
	$(ACTIONLINT) .github/workflows/*.yml
	$(MAKE) test
	$(MAKE) test-browser
	$(MAKE) -j 3 --output-sync test-worker faults-short world # the first two wait more than they compute

faults: $(AZURITE) ## inject hundreds of faults into the message flow and check that no message is lost (FLAGS=-seed=1)
	go run ./handler/tools/faults $(FLAGS)

faults-short: $(AZURITE) ## the same in one to two minutes
	go run ./handler/tools/faults -schedules 12 -systems 6 -time 10s -outage=false -later=false $(FLAGS)

faults-long: $(AZURITE) ## 50,000 messages while handler and host are killed every few seconds
	go run ./handler/tools/faults -long 50000 $(FLAGS)

world: needs-go ## play schedules of faults in the simulated world for a minute
	nice go test -count=1 -timeout 10m ./handler/tools/world -run '^TestWorld$$' -schedules 1000000000 -for 1m

world-long: needs-go ## the same until a schedule fails, or Ctrl-C (FLAGS="-first N")
	go test -count=1 -timeout 0 ./handler/tools/world -run '^TestWorld$$' -schedules 1000000000 -v $(FLAGS)

planted: needs-go ## demand that 100 schedules of the world find each planted bug (FLAGS=NAME for one of them)
	go run ./handler/tools/world/planted -find $(FLAGS)

bench: needs-go ## measure the processor time and the allocations of a message (FLAGS=-count=5)
	go test -run '^$$' -bench . $(FLAGS) ./handler/internal/app/ingress
	go test -run '^$$' -bench . -benchtime 20000x $(FLAGS) ./handler/tools/e2e

size: ## lines of Go per package that are neither blank nor only a comment, tests apart
	@find handler -name '*.go' ! -name '*_test.go' | sort | xargs awk ' \
		!/^[ \t]*(\/\/.*)?$$/ { dir = FILENAME; sub("/[^/]*$$", "", dir); lines[dir]++; all++; \
			if (dir !~ "/tools|/(storagetest|sighttest)$$") product++ } \
		END { for (dir in lines) printf "%6d %s\n", lines[dir], dir | "sort -k 2"; close("sort -k 2"); \
			printf "%6d product (without tools, and packages for tests alone)\n%6d all\n", product, all }'

vuln: needs-go ## look for known vulnerabilities in what is used (needs vuln.go.dev)
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

format: needs-go ## format the Go code
	$(GOLANGCI_LINT) fmt

package: needs-go ## pack dist/async-caller.zip for a Function App on linux/amd64
	go run ./handler/tools/stage -zip

release: needs-go ## executables for six platforms, SBOMs, package and sums in dist/release (REPOSITORY=owner/name)
	@test -n "$(REPOSITORY)" || { echo "set REPOSITORY to the repository on GitHub, to which links of the release lead: \
	make release REPOSITORY=owner/name" >&2; exit 1; }
	go run ./handler/tools/stage -release "$(REPOSITORY)"

deploy: needs-go needs-func ## publish the package to a Function App: make deploy APP=name
	@test -n "$(APP)" || { echo "set APP to the name of the Function App: make deploy APP=name" >&2; exit 1; }
	$(MAKE) package
	cd dist/package && func azure functionapp publish "$(APP)" --no-build

azure-smoke: ## provision a test environment, deploy, drill, and delete all of it (needs Azure, azd and az)
	.ci/azure-smoke

npm: $(AZURITE) $(SAMPLES) $(AXE) ## install Azurite, axe-core and the packages of the samples, for go test without make

# The marker is made last, so an interrupted install has none. No package has an install script of use.
%/node_modules/.installed: %/package-lock.json | needs-go needs-node
	cd $* && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

# These are checked before anything is downloaded or built. An older Go than 1.21 cannot read go.mod; a newer one
# fetches the version that go.mod requires, unless GOTOOLCHAIN or the network forbids it.
GO_VERSION = $(shell sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod)

needs-go:
	@command -v go >/dev/null || { echo "go is missing: install Go $(GO_VERSION) or later from https://go.dev/dl, \
	and put it on the PATH" >&2; exit 1; }
	@problem=$$(go list -m 2>&1) || { echo "this Go cannot build the project: install Go $(GO_VERSION) or later from \
	https://go.dev/dl; it says: $$problem" >&2; exit 1; }

needs-node:
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "node or npm is missing: install Node.js 21 or later, \
	which includes both, and put it on the PATH" >&2; exit 1; }
	@node -e 'if (parseInt(process.versions.node) < 21) console.error("warning: Azurite requires Node.js 21 or later, and \
	this is " + process.version + "; if it fails, install a newer one")'

needs-chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	command -v google-chrome >/dev/null || { echo "chromium is missing: install it, for example with apt-get install \
	chromium, or Google Chrome, and put it on the PATH" >&2; exit 1; }

needs-func:
	@command -v func >/dev/null || { echo "func is not installed: install Azure Functions Core Tools 4, see \
	https://learn.microsoft.com/azure/azure-functions/functions-run-local" >&2; exit 1; }
