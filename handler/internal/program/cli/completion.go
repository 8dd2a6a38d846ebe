package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/envelope"
	"asynccaller/handler/internal/storage"
)

// addCompletions declares what shells offer for the flags and arguments of the commands below one. A flag that has a
// completion keeps it. Files are offered only where one is meant.
func addCompletions(env Env, parent *cobra.Command) {
	files := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	folders := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	hosts := offer(env, func(a config.App) []string { return a.Settings.Rules.Profiles.Patterns() })
	queues := offer(env, queueNames)
	flags := map[string]cobra.CompletionFunc{
		"app": folders, "runs": folders, "output": files,
		"host": hosts, "queue": queues, "to": queues,
		"retry":   offer(env, func(a config.App) []string { return a.Settings.Rules.Policies.Names() }),
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

// offer returns a completion by the names of an app.
func offer(env Env, names func(config.App) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		app := config.ReadApp(cmd.Flag("app").Value.String(), env.Environ, config.Operator)
		offered := slices.DeleteFunc(names(app), func(name string) bool {
			return format.ShellWord(name) != name // a shell inserts it as it is
		})
		slices.Sort(offered)
		return slices.Compact(offered), cobra.ShellCompDirectiveNoFileComp
	}
}

// queueNames returns the queues that the handler and the routes read, and their poison queues.
func queueNames(a config.App) (names []string) {
	for _, name := range slices.AppendSeq(envelope.Queues(), maps.Keys(a.Settings.Routes)) {
		names = append(names, name, name+storage.PoisonSuffix)
	}
	return names
}
