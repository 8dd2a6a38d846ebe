package functionapp

import (
	"slices"
	"strings"
)

// Logging is what host.json says about the log of the handler.
type Logging struct {
	// Setting and Level are the level that decides about the handler's lines; empty if there is none.
	Setting, Level string
	// Unsampled reports whether Application Insights gets all of a busy log, and SamplingSet whether host.json says
	// anything about that. It drops a part by default.
	Unsampled, SamplingSet bool
}

// ShowsHandler reports whether the host logs the handler's lines, which it does at level Information.
func (l Logging) ShowsHandler() bool {
	shown := []string{"", "trace", "debug", "information", "0", "1", "2"}
	return slices.Contains(shown, strings.ToLower(l.Level))
}

// The paths of host.json about the log.
const (
	logLevels         = "logging.logLevel."
	insightsLogLevels = "logging.applicationInsights.logLevel."
	samplingSettings  = "logging.applicationInsights.samplingSettings."
)

func (h *hostJSON) logging() (l Logging) {
	// .NET prefers the levels of a provider, if any matches (source: LoggerRuleSelector.cs)
	l.Setting, l.Level = h.handlerLevel(insightsLogLevels)
	if l.Level == "" {
		l.Setting, l.Level = h.handlerLevel(logLevels)
	}
	types := func(name string) []string { return strings.Split(strings.ToLower(h.text(samplingSettings+name)), ";") }
	included, excluded := types("includedTypes"), types("excludedTypes")
	isOff := strings.EqualFold(h.text(samplingSettings+"isEnabled"), "false")
	isLeftOut := included[0] != "" && !slices.Contains(included, "trace")
	l.Unsampled = isOff || isLeftOut || slices.Contains(excluded, "trace")
	for key := range h.values {
		l.SamplingSet = l.SamplingSet || strings.HasPrefix(key, keyOf(samplingSettings))
	}
	return l
}

// handlerLevel returns the level of the category of the handler's lines: that of the longest prefix, in which one *
// stands for any text.
func (h *hostJSON) handlerLevel(section string) (setting, level string) {
	const console = "host.function.console"
	longest := -1
	for key, value := range h.values {
		name, found := strings.CutPrefix(key, keyOf(section))
		category := name
		if name == "default" {
			category = ""
		}
		before, after, _ := strings.Cut(category, "*")
		matches := found && strings.HasPrefix(console, before) && strings.HasSuffix(console, after)
		if matches && value != "" && len(category) > longest {
			longest = len(category)
			setting, level = section+name, value
		}
	}
	return setting, level
}
