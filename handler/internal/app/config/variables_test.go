package config_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"asynccaller/handler/internal/app/config"
)

// TestVariables: the same files serve two environments, and the settings say which values they have.
func TestVariables(t *testing.T) {
	dir := withRetryFile(t, `{"patient":{"schedule":["${FIRST_WAIT}"]}}`)
	mustWrite(t, dir, config.TargetsFile,
		`{"${PARTNER_HOST}":{"rate":"${PARTNER_RATE}",
			"headers":{"X-Stage":"${STAGE}","Authorization":"$PARTNER_AUTH"}}}`)
	mustWrite(t, dir, config.RoutesFile,
		`{"orders-in":{"url":"https://${PARTNER_HOST}/${STAGE}/orders","headers":{"X-Price":"$5"}}}`)
	mustWrite(t, dir, "local.settings.json", `{"Values":{"STAGE":"dev","PARTNER_RATE":"5/m"}}`)
	environ := func(stage string) []string {
		return []string{
			"PARTNER_HOST= Partner." + stage + ".example ", "PARTNER_RATE=50/s", "STAGE=" + stage, "FIRST_WAIT=1m",
			"PARTNER_AUTH=Bearer C4nary",
		}
	}
	for _, stage := range []string{"test", "prod"} {
		t.Run(stage, func(t *testing.T) {
			a := config.ReadApp(dir, environ(stage), config.Handler)
			if a.SettingsErr != nil {
				t.Fatal(a.SettingsErr)
			}
			p := a.Settings.Rules.Profiles.For(&url.URL{Scheme: "https", Host: "partner." + stage + ".example"})
			if p.RateText != "50/s" || p.Headers.Get("X-Stage") != stage ||
				p.Headers.Get("Authorization") != "Bearer C4nary" {
				t.Errorf("profile %+v", p)
			}
			want := "https://Partner." + stage + ".example/" + stage + "/orders"
			if got := a.Settings.Routes["orders-in"].URL; got != want {
				t.Errorf("the route calls %s, want %s", got, want)
			}
		})
	}
	a := config.ReadApp(dir, []string{"PARTNER_HOST=partner.example", "FIRST_WAIT=1m", "STAGE=test"}, config.Operator)
	if a.SettingsErr != nil {
		t.Fatal(a.SettingsErr)
	}
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
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
	if err == nil {
		t.Fatal("nothing was found wrong")
	}
	if strings.Contains(err.Error(), "C4nary") {
		t.Errorf("a secret is shown: %v", err)
	}
	lines := strings.Split(err.Error(), "\n")
	wants := []string{
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
		`routes.json: "more-in": url: `,
	}
	for i, want := range wants {
		if len(lines) != len(wants) || !strings.HasPrefix(lines[i], want) {
			t.Fatalf("line %d is not about %s:\n%v", i+1, want, err)
		}
	}
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
