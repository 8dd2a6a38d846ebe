package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bed is all that takes part in a run. Floor and product run while cells are measured; what needs fresh
// processes starts its own.
type bed struct {
	target *target
	// storage is the product's, floorStorage the floor's: each is counted for itself.
	storage, floorStorage *storage
	// executable is the product's, app its app folder.
	executable, app string

	floorProgram   program
	productProgram program
	floor, product *process
}

// The names of the programs.
const (
	floorName   = "floor"
	productName = "product"
)

// newBed builds both programs into the folder and starts target and storage. Close it when done.
func newBed(ctx context.Context, project, work string, talk io.Writer) (*bed, error) {
	floor, product := filepath.Join(work, "floor"), filepath.Join(work, "async-caller")
	err := errors.Join(build(ctx, project, "./handler/tools/bench/floor", floor, talk), build(ctx, project, "./handler", product, talk))
	app := filepath.Join(work, "app")
	if err := errors.Join(err, stage(project, app)); err != nil {
		return nil, err
	}
	b := &bed{target: newTarget(), storage: newStorage(), floorStorage: newStorage(), executable: product, app: app}
	b.floorProgram = program{name: floorName, executable: floor, env: []string{
		"TARGET=" + b.target.url(), "STORAGE=" + b.floorStorage.messages(floorName),
	}}
	b.productProgram = b.productOn(b.storage.connectionString())
	return b, nil
}

// productOn is the product with a storage account.
func (b *bed) productOn(connectionString string) program {
	return program{name: productName, executable: b.executable, args: []string{"serve"}, env: []string{
		"AzureWebJobsStorage=" + connectionString,
		"FUNCTIONS_APP_ROOT_PATH=" + b.app,
		"ASYNC_CALLER_TARGETS_ALLOW=127.0.0.1,*",
		"ASYNC_CALLER_LOG_LEVEL=info",
	}}
}

// start starts both programs.
func (b *bed) start(ctx context.Context) (err error) {
	if b.floor, err = b.floorProgram.start(ctx); err != nil {
		return err
	}
	b.product, err = b.productProgram.start(ctx)
	return err
}

// stop ends the programs that run, and says so if one had ended by itself.
func (b *bed) stop() (err error) {
	for _, p := range []*process{b.floor, b.product} {
		if p != nil {
			err = errors.Join(err, p.stop())
		}
	}
	b.floor, b.product = nil, nil
	return err
}

// close ends all. It is an error when the product asked storage for what the stub does not know.
func (b *bed) close() error {
	err := b.stop()
	b.target.close()
	b.storage.close()
	b.floorStorage.close()
	if n := b.storage.strange.Load(); n > 0 {
		err = errors.Join(err, fmt.Errorf("the product made %d storage requests that the stub does not know: extend it", n))
	}
	return err
}

// build builds a package as `make package` does, though for this machine.
func build(ctx context.Context, project, from, to string, talk io.Writer) error {
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s", "-o", to, from)
	command.Dir = project
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	command.Stdout, command.Stderr = talk, talk
	if err := command.Run(); err != nil {
		return fmt.Errorf("building %s in the project's folder: %w", from, err)
	}
	return nil
}

// stage makes an app folder of the project's host.json and one function for each mode.
func stage(project, app string) error {
	host, err := os.ReadFile(filepath.Join(project, "host.json"))
	if err != nil {
		return fmt.Errorf("run in the project's folder: %w", err)
	}
	for _, m := range []mode{modeBinary, modeText} {
		folder := filepath.Join(app, m.function())
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "function.json"), functionJSON(m), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(app, "host.json"), host, 0o600)
}

func functionJSON(m mode) []byte {
	return fmt.Appendf(nil, `{"bindings":[{"type":"queueTrigger","direction":"in","name":"message",`+
		`"queueName":%q,"connection":"AzureWebJobsStorage","dataType":%q}]}`, strings.ToLower(m.function()), m.dataType())
}
