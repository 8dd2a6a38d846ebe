package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion(s Surroundings) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Version prints the program's version, and the system that it was built for.",
		Example: `  async-caller version`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(s.Stdout, "%s %s %s/%s\n", programName, version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// version is what the Go tool recorded when it built the program: a tag, or the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}
