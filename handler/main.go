// Async-caller delivers HTTP calls to systems that are sometimes down. It is the custom handler of an Azure
// Functions app, and the command line for its developers and operators. See README.md.
package main

import (
	"context"
	"os"

	"asynccaller/handler/internal/program/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.ProcessEnv()))
}
