package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts checks what the program prints about wrong usage and configuration.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}
