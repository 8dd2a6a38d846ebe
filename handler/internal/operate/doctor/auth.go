package doctor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"asynccaller/handler/internal/app/config"
	"asynccaller/handler/internal/deliver/outbound"
	"asynccaller/handler/internal/gates/credential"
	"asynccaller/handler/internal/plain/format"
	"asynccaller/handler/internal/rules/targets"
)

// Auth fetches a token of each credential in targets.json, as the handler does, and drops it.
func Auth(ctx context.Context, dir string, environ []string, report Reporter) {
	const check = "auth"
	a := config.ReadApp(dir, environ, config.Doctor)
	if a.SettingsErr != nil || a.LocalErr != nil {
		report.skip(check)
		return
	}
	patterns := map[targets.Credential][]string{}
	credentials := a.Settings.Rules.Profiles.Credentials()
	for _, pattern := range slices.Sorted(maps.Keys(credentials)) {
		c := credentials[pattern]
		patterns[c] = append(patterns[c], pattern)
	}
	if len(patterns) == 0 {
		report.ok(check, "targets.json has no credentials")
	}
	client := outbound.New(a.Settings.CallTimeout, a.Settings.Guard, a.Settings.Proxy)
	defer client.Close()
	fetch := credential.NewFetch(client.TokenClient())
	byName := func(a, b targets.Credential) int { return strings.Compare(a.Name, b.Name) }
	for _, c := range slices.SortedFunc(maps.Keys(patterns), byName) {
		about := c.Name + ", for " + strings.Join(patterns[c], ", ")
		token, err := fetch(ctx, c)
		if err != nil {
			report(Line{
				State: Broken, Check: check, Text: about + ": " + credential.Cause(c, err), Next: tokenAdvice(c, err),
			})
			continue
		}
		report.ok(check, about+": its token ends in "+format.Age(time.Until(token.End)))
	}
}

// tokenAdvice returns what to do about a token request that has failed.
func tokenAdvice(c targets.Credential, err error) string {
	problem, isKnown := errors.AsType[*credential.ProblemError](err)
	switch {
	case isKnown && problem.ByOperator:
		return "correct auth in targets.json, its environment variables, or what the token server has granted"
	case c.Kind == targets.ManagedIdentity:
		return "wait: the handler tries again by itself; if it lasts, restart the app"
	}
	return "wait: the handler tries again by itself; if it lasts, check tokenUrl in targets.json, the token server " +
		"and the network to it"
}
