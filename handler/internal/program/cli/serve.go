package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/app/functionapp"
	"asynccaller/handler/internal/program/logview"
	"asynccaller/handler/internal/program/serve"
	"asynccaller/handler/internal/program/terminal"
)

const serveName = functionapp.ServeArgument

func newServe(env Env) *cobra.Command {
	return &cobra.Command{
		Use:   serveName,
		Short: "Serve the Functions host as its custom handler",
		Long: `Serve the Functions host, which starts this command as the custom handler of the app and passes
queue messages to it. The handler listens on 127.0.0.1 at FUNCTIONS_CUSTOMHANDLER_PORT. It reads
host.json and the function.json files in FUNCTIONS_APP_ROOT_PATH or the working directory to learn
which function serves which queue. The settings are environment variables: AzureWebJobsStorage and

` + settingsHelp() + `
At start-up the handler validates the settings, host.json and every function.json, and reports all
problems at once. With AZURE_FUNCTIONS_ENVIRONMENT=Development, which func start sets, it then exits
with code 2. Otherwise, if only the settings above, retry.json or targets.json are wrong, or the
host forwards requests of HTTP functions, it starts in hold mode: it makes no calls, and messages go
back to their queues until the settings are corrected. Later it never exits with code 0, because the
host would not restart it.`,
		Example: `  func start    # in dist: the host starts serve`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), env) },
	}
}

func settingsHelp() string {
	const indent = "\n      "
	var text strings.Builder
	for _, setting := range config.Table() {
		meaning := strings.Join(terminal.Wrap(setting.Meaning, terminal.DefaultWidth-len(indent)), indent)
		fmt.Fprintf(&text, "  %s (%s)%s%s\n", setting.Name, setting.Default, indent, meaning)
	}
	return text.String()
}

func runServe(ctx context.Context, env Env) error {
	c, err := serve.ReadConfig(env.Environ)
	if err != nil {
		return usageError(err)
	}
	store, err := openStore(c.App)
	if err != nil {
		return err
	}
	defer store.Close()
	c.Store = store
	c.Version = version()
	return serve.Run(ctx, c, logview.OnTerminal(env.Stdout))
}
