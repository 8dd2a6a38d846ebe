// Async-caller delivers HTTP calls to systems that are sometimes down: it is the custom handler of an
// Azure Functions app, and the tools for the people who run it. See README.md.
package main

import (
	"context"
	"os"

	"asynccaller/handler/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.System()))
}
