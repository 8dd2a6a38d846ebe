package functionapp

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// checkRoutes refuses HTTP functions whose clients could forge invocations. Routes maps each function.json to the route
// of its HTTP function. With forwarding the host sends a request to the handler under the request's own path, which
// could be that of a queue or timer function. Only the header Host then differs from an invocation's
// (docs/host.md, "HTTP functions").
func (a *App) checkRoutes(host *hostJSON, routes map[string]string) (found problems) {
	option := host.forwarding()
	if option == "" {
		return nil
	}
	const prefixPath = "extensions.http.routePrefix"
	prefix, given := host.values[keyOf(prefixPath)] // null is given, and is empty
	if !given {
		prefix = "api"
	}
	for _, file := range slices.Sorted(maps.Keys(routes)) {
		for _, name := range a.Names() {
			if !canMatch(prefix+"/"+routes[file], name) {
				continue
			}
			found.add("%s: route %q can match /%s, the path of function %s, "+
				"because in host.json %s is on and %s is %q: clients of this HTTP function could forge invocations: "+
				`set the prefix to "api", or change the route`,
				file, routes[file], name, name, option, prefixPath, prefix)
			break
		}
	}
	return found
}

// Names returns the names of all functions that take invocations.
func (a *App) Names() (names []string) {
	for _, f := range a.Functions {
		names = append(names, f.Name)
	}
	for _, t := range a.Timers {
		names = append(names, t.Name)
	}
	return names
}

// forwarding returns the option that makes the host pass on requests of HTTP functions under their own path, or "".
func (h *hostJSON) forwarding() string {
	for _, option := range []string{
		"customHandler.enableForwardingHttpRequest",
		"customHandler.enableProxyingHttpRequest",
	} {
		value := strings.TrimSpace(h.text(option))
		if value != "" && !strings.EqualFold(value, "false") {
			return option
		}
	}
	return ""
}

// omissible matches a segment of a route that a path may lack: a catch-all, or a parameter that is optional or has a
// default.
var omissible = regexp.MustCompile(`^\{.*[*?=].*\}$|%`)

// canMatch reports whether a route of ASP.NET can match the path /name, which has one segment. In doubt it can: every
// constraint counts as met, any text may be where the first to the last parameter of a segment are, and a segment with
// a %, which may name a setting, matches everything.
func canMatch(route, name string) bool {
	isRequired := func(segment string) bool { return !omissible.MatchString(segment) }
	segments := routeSegments(strings.TrimLeft(route, "/~"))
	if len(segments) == 0 || slices.ContainsFunc(segments[1:], isRequired) {
		return false
	}
	segment, name := strings.ToLower(segments[0]), strings.ToLower(name)
	before, _, hasParameter := strings.Cut(segment, "{")
	after := segment[strings.LastIndex(segment, "}")+1:]
	switch {
	case strings.Contains(segment, "%"):
		return true
	case !hasParameter:
		return segment == name
	default:
		return strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
	}
}

// routeSegments splits a route at each slash outside a parameter, because a constraint may contain slashes. It leaves
// out empty segments.
func routeSegments(route string) []string {
	depth := 0
	return strings.FieldsFunc(route, func(c rune) bool {
		switch c {
		case '{':
			depth++
		case '}':
			depth = max(depth-1, 0)
		}
		return c == '/' && depth == 0
	})
}
