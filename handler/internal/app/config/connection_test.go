package config_test

import (
	"strings"
	"testing"

	"asynccaller/handler/internal/app/config"
)

// TestEmptyConnection: a setting of the storage connection that is empty is named, and local.settings.json does not
// take its place silently. An empty one that changes nothing is no problem.
func TestEmptyConnection(t *testing.T) {
	const (
		storage, account = "AzureWebJobsStorage", "AzureWebJobsStorage__accountName"
		development      = `{"AzureWebJobsStorage":"UseDevelopmentStorage=true"}`
	)
	for name, test := range map[string]struct {
		local   string
		environ []string
		want    string
	}{
		"nowhere":          {`{}`, []string{storage + "="}, storage + ": missing"},
		"file":             {development, []string{storage + "="}, storage + " in the env"},
		"other_case":       {development, []string{"AZUREWEBJOBSSTORAGE="}, "AZUREWEBJOBSSTORAGE"},
		"white_space":      {development, []string{storage + "= \t"}, storage + ": missing"},
		"identity":         {development, []string{account + "="}, account + " in the env"},
		"file_of_identity": {`{"AzureWebJobsStorage__accountName":"acct"}`, []string{storage + "="}, storage + " in the env"},
		"beside_identity":  {`{}`, []string{storage + "=", account + "=acct"}, ""},
		"both_in_file":     {`{"AzureWebJobsStorage":"","AzureWebJobsStorage__accountName":"acct"}`, nil, ""},
		"empty_file":       {`{"AzureWebJobsStorage":""}`, nil, storage + ": missing"},
		"other_setting":    {development, []string{"AzureWebJobsStorageX="}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mustWrite(t, dir, "local.settings.json", `{"Values":`+test.local+`}`)
			err := config.ReadApp(dir, test.environ, config.Operator).ConnectionErr
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}
