package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/operate/operation"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// completionTimeout is how long a person at a keyboard waits for names of the account.
const completionTimeout = 2 * time.Second

// addCompletions declares what shells offer for the flags and arguments of the commands below one. A flag that has a
// completion keeps it. Files are offered only where one is meant.
func addCompletions(env Env, parent *cobra.Command) {
	files := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	folders := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	hosts, queues := offer(env, hostNames), offer(env, queueNames)
	flags := map[string]cobra.CompletionFunc{
		"app": folders, "runs": folders, "output": files,
		"host": hosts, "queue": queues, "to": queues,
		"retry":   offer(env, func(_ context.Context, a config.App) []string { return a.Settings.Rules.Policies.Names() }),
		"failure": cobra.FixedCompletions(strings.Split(failureNames(), ", "), cobra.ShellCompDirectiveNoFileComp),
	}
	for _, command := range parent.Commands() {
		addCompletions(env, command)
		for _, set := range []*pflag.FlagSet{command.Flags(), command.PersistentFlags()} {
			set.VisitAll(func(flag *pflag.Flag) {
				names, isKnown := flags[flag.Name]
				if isKnown {
					_ = command.RegisterFlagCompletionFunc(flag.Name, names)
				}
			})
		}
		argument := strings.TrimPrefix(command.Use, command.Name())
		switch {
		case strings.Contains(argument, "FILE"):
			command.ValidArgsFunction = files
		case strings.Contains(argument, "HOST"):
			command.ValidArgsFunction = hosts
		}
	}
}

// offer returns a completion by the names of an app, and of its account as far as that answers in time.
func offer(env Env, names func(context.Context, config.App) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		app := config.ReadApp(cmd.Flag("app").Value.String(), env.Environ, config.Operator)
		offered := slices.DeleteFunc(names(ctx, app), func(name string) bool {
			return format.ShellWord(name) != name // a shell inserts it as it is
		})
		slices.Sort(offered)
		return slices.Compact(offered), cobra.ShellCompDirectiveNoFileComp
	}
}

// hostNames returns the targets of targets.json, and those of the account that fail, are paused, or have a limit set.
func hostNames(ctx context.Context, a config.App) []string {
	names := a.Settings.Rules.Profiles.Patterns()
	op, closeAccount, err := operation.Open(a)
	if err != nil {
		return names
	}
	defer closeAccount()
	settings, _ := op.Account.Settings(ctx) // best effort, as what follows
	for _, made := range settings {
		if made.Problem == "" {
			names = append(names, made.Host)
		}
	}
	failing, _ := op.Account.Failing(ctx)
	for _, target := range failing {
		names = append(names, target.Host)
	}
	return names
}

// queueNames returns the queues that the handler and the routes read, their poison queues, and those of the account.
func queueNames(ctx context.Context, a config.App) (names []string) {
	for _, name := range slices.AppendSeq(envelope.Queues(), maps.Keys(a.Settings.Routes)) {
		names = append(names, name, name+storage.PoisonSuffix)
	}
	op, closeAccount, err := operation.Open(a)
	if err != nil {
		return names
	}
	defer closeAccount()
	all, _ := op.Account.Store.Names(ctx, "")
	return append(names, slices.DeleteFunc(all, func(name string) bool { return !storage.ValidName(name) })...)
}
