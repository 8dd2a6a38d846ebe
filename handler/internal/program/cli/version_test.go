package cli

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	const commit, changed = "1569772401ea247d2c20d269190b7c9fd330f7d0", " with changes"
	settings := func(revision, modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "-trimpath", Value: "true"},
			{Key: "vcs.revision", Value: revision},
			{Key: "vcs.modified", Value: modified},
		}
	}
	tests := map[string]struct {
		version  string
		settings []debug.BuildSetting
		want     string // PLATFORM stands for the platform
	}{
		"tag":         {"v1.2.3", settings(commit, "false"), "v1.2.3 PLATFORM, commit " + commit},
		"modified":    {"v1.2.3+dirty", settings(commit, "true"), "v1.2.3+dirty PLATFORM, commit " + commit + changed},
		"no_checkout": {"(devel)", nil, "(devel) PLATFORM, unknown commit"},
		"no_version":  {"", nil, "(devel) PLATFORM, unknown commit"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			info := &debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}
			b := buildOf(info)
			if got := strings.Replace(b.String(), b.OS+"/"+b.Arch, "PLATFORM", 1); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
