package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build identifies an executable by what the Go tool recorded in it.
type build struct {
	// Version is the tag of the commit, or else a pseudo-version. It ends in +dirty if Modified. Without a commit it is
	// (devel).
	Version string `json:"version"`
	// Commit is empty if the source was no Git checkout, or if -buildvcs=false.
	Commit string `json:"commit"`
	// Modified says that the source differed from the commit.
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func newVersion(env Env) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "Print the version, the platform and the commit of the executable, as --version does.",
		Example: `  async-caller version
  async-caller version --json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(env.out, thisBuild())
			}
			_, err := fmt.Fprintln(env.out, programName, thisBuild())
			return err
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON: version, commit, modified, go, os, arch")
	return command
}

func (b build) String() string {
	commit := "unknown commit"
	if b.Commit != "" {
		commit = "commit " + b.Commit
	}
	if b.Modified {
		commit += " with changes"
	}
	return fmt.Sprintf("%s %s/%s, %s", b.Version, b.OS, b.Arch, commit)
}

// version returns the version of this executable.
func version() string { return thisBuild().Version }

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{Version: info.Main.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	if b.Version == "" {
		b.Version = "(devel)"
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}
