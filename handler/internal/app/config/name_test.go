package config_test

import (
	"testing"

	"asynccaller/handler/internal/app/config"
)

// TestName: the name of an app is the first that is set, in lower case. A name that is no valid setting does not count.
func TestName(t *testing.T) {
	const (
		own, hostID, site  = "ASYNC_CALLER_APP=Own", "AzureFunctionsWebHost__hostid=Id", "WEBSITE_SITE_NAME=Site"
		slot, main, worker = "WEBSITE_SLOT_NAME=Test", "WEBSITE_SLOT_NAME=Production", "CONTAINER_APP_NAME=Worker"
	)
	for name, test := range map[string]struct {
		environ []string
		want    string
	}{
		"nowhere":           {nil, "local"},
		"slot_alone":        {[]string{slot}, "local"},
		"setting":           {[]string{own, hostID, site, slot, worker}, "own"},
		"setting_pasted":    {[]string{"ASYNC_CALLER_APP=\u200b\"Own\" ", site}, "own"},
		"setting_invalid":   {[]string{"ASYNC_CALLER_APP=a b", site}, "site"},
		"setting_none":      {[]string{"ASYNC_CALLER_APP=none", site}, "site"},
		"setting_empty":     {[]string{"ASYNC_CALLER_APP=", site}, "site"},
		"host_id":           {[]string{hostID, site, slot, worker}, "id"},
		"site":              {[]string{site, worker}, "site"},
		"site_slot":         {[]string{site, slot, worker}, "site-test"},
		"site_production":   {[]string{site, main}, "site"},
		"container_app":     {[]string{worker}, "worker"},
		"container_of_slot": {[]string{worker, slot}, "worker"},
	} {
		t.Run(name, func(t *testing.T) {
			app := config.ReadApp(t.TempDir(), test.environ, config.Worker)
			if got := app.Name(); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
