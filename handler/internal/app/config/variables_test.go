package config_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/config"
)

// TestVariables: the environment fills in the files, and the settings say which values they have.
func TestVariables(t *testing.T) {
	dir := withRetryFile(t, `{"patient":{"schedule":["${FIRST_WAIT}"]}}`)
	mustWrite(t, dir, config.TargetsFile,
		`{"${PARTNER_HOST}":{"rate":"${PARTNER_RATE}",
			"headers":{"X-Stage":"${STAGE}","Authorization":"$PARTNER_AUTH"}}}`)
	mustWrite(t, dir, config.RoutesFile,
		`{"orders-in":{"url":"https://${PARTNER_HOST}/${STAGE}/orders","headers":{"X-Price":"$5"}}}`)
	mustWrite(t, dir, "local.settings.json", `{"Values":{"STAGE":"dev","PARTNER_RATE":"5/m"}}`)
	a := config.ReadApp(dir, []string{
		"PARTNER_HOST= Partner.prod.example ", "PARTNER_RATE=50/s", "STAGE=prod", "FIRST_WAIT=1m",
		"PARTNER_AUTH=Bearer C4nary",
	}, config.Handler)
	p := a.Settings.Rules.Profiles.For(&url.URL{Scheme: "https", Host: "partner.prod.example"})
	if p.RateText != "50/s" || p.Headers.Get("X-Stage") != "prod" ||
		p.Headers.Get("Authorization") != "Bearer C4nary" || a.SettingsErr != nil {
		t.Errorf("profile %+v, %v", p, a.SettingsErr)
	}
	if got := a.Settings.Routes["orders-in"].URL; got != "https://Partner.prod.example/prod/orders" {
		t.Errorf("the route calls %s", got)
	}
	a = config.ReadApp(dir, []string{"PARTNER_HOST=partner.example", "FIRST_WAIT=1m", "STAGE=test"}, config.Operator)
	var got []string
	for _, v := range a.Settings.Variables {
		got = append(got, v.String())
	}
	want := []string{
		`FIRST_WAIT is "1m", from the environment, in retry.json`,
		`PARTNER_HOST is "partner.example", from the environment, in targets.json, routes.json`,
		`PARTNER_RATE is "5/m", from local.settings.json, in targets.json`,
		`STAGE is "test", from the environment, in targets.json, routes.json`,
	}
	if diff := cmp.Diff(want, got); diff != "" || a.SettingsErr != nil {
		t.Errorf("error %v, variables (-want +got):\n%s", a.SettingsErr, diff)
	}
}

// TestVariablesAreReported: the problems of all files at once, each on a line that names its file and member, and the
// other problems of the files too.
func TestVariablesAreReported(t *testing.T) {
	dir := withRetryFile(t, `{"patient":{"baseDelay":"${FIRST_WAIT}"},"io":{}}`)
	mustWrite(t, dir, config.TargetsFile, `{"${PARTNER_HOST}":{"headers":{"X-Stage":"${STAGE"}},"${A}":{},
		"a.example":{"timeout":0},"b.example":{"headers":{"X-Login":"$LOGIN","X-A":"${API_KEY}"}}}`)
	mustWrite(t, dir, config.RoutesFile, `{"orders-in":{"url":"https://${PARTNER_HOST}/?user=${LOGIN}"},
		"${STAGE}-in":{"url":"https://a.example"},"more-in":{"url":"http://169.254.169.254/"},
		"storage-in":{"url":"https://a.example","headers":{"X":["${AzureWebJobsStorage}","${ASYNC_CALLER_PROXY}"]}}}`)
	getenv := func(string) string { return "C4nary" }
	environ := []string{
		"A=a.example", "LOGIN=C4nary", "API_KEY=C4nary", "AzureWebJobsStorage=C4nary",
		"ASYNC_CALLER_PROXY=http://me:C4nary@proxy.example",
	}
	_, err := config.LoadApp(dir, environ, getenv)
	if strings.Contains(fmt.Sprint(err), "C4nary") {
		t.Errorf("a secret is shown: %v", err)
	}
	wantLines(t, err,
		`retry.json: "patient": baseDelay: the environment variable FIRST_WAIT is not set: `,
		`retry.json: io: `,
		`targets.json: "${PARTNER_HOST}": the environment variable PARTNER_HOST is not set: `,
		`targets.json: "${PARTNER_HOST}": headers.X-Stage: want ${NAME} after ${`,
		`targets.json: "b.example": headers.X-A: the environment variable API_KEY has the name of a secret`,
		`targets.json: a.example: appears twice`,
		`routes.json: "orders-in": url: the environment variable PARTNER_HOST is not set: `,
		`routes.json: "orders-in": url: the environment variable LOGIN has the name of a secret, or targets.json`,
		`routes.json: "storage-in": headers.X[0]: the environment variable AzureWebJobsStorage has the name of`,
		`routes.json: "storage-in": headers.X[1]: the environment variable ASYNC_CALLER_PROXY has the name of`,
		`routes.json: "${STAGE}-in": the name of a queue cannot refer to a variable`,
		`routes.json: "more-in": url: `)
}

// TestRoutesWithoutSettings: the functions of routes are made where the variables are unknown.
func TestRoutesWithoutSettings(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, config.RoutesFile,
		`{"orders-in":{"url":"https://${PARTNER_HOST}/","deadline":1},"returns-in":{"url":"https://a.example"}}`)
	routes, err := config.LoadRoutes(dir)
	if err != nil || len(routes) != 2 || routes["orders-in"].Queue != "orders-in" {
		t.Errorf("got %v, %v", routes, err)
	}
	mustWrite(t, dir, config.RoutesFile,
		`{"${STAGE}-in":{"url":"https://a.example"},"orders-in":{"url":"${"},"a-in":{}}`)
	_, err = config.LoadRoutes(dir)
	if err == nil || !strings.Contains(err.Error(), `routes.json: "${STAGE}-in": the name of a queue cannot`) ||
		!strings.Contains(err.Error(), `"a-in": url: is missing`) || strings.Contains(err.Error(), "orders-in") {
		t.Errorf("got %v", err)
	}
}
