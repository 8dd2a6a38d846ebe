package certificate_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"asynccaller/handler/internal/rules/certificate"
)

// The files of testdata are keys and certificates of nobody, made by OpenSSL 3.0 and by Java's keytool. client.pem is
// issued by the first certificate of chain.pem, and that by the second one. openssl1.pfx has the ciphers of OpenSSL 1,
// .NET and Key Vault (3DES, SHA-1), openssl3.pfx those of OpenSSL 3 (AES-256, SHA-256), and keytool.pfx is a key store
// of Java after openssl pkcs12 -export -passout pass:. The other files with a password have secret.

// read returns the texts of files one after the other, those of PKCS#12 as base64.
func read(tb testing.TB, names ...string) (content string) {
	tb.Helper()
	for _, name := range names {
		file, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			tb.Fatal(err)
		}
		if strings.HasSuffix(name, ".pfx") {
			file = []byte(base64.StdEncoding.EncodeToString(file))
		}
		content += string(file)
	}
	return content
}

// TestParse: the same certificate in every form that people have it in.
func TestParse(t *testing.T) {
	pem := read(t, "client.key", "client.pem", "chain.pem")
	want, err := certificate.Parse(pem)
	if err != nil {
		t.Fatal(err)
	}
	if want.Subject != "client" || want.Ends.Year() < 2100 || len(want.Pair().Certificate) != 3 {
		t.Errorf("got %+v with %d certificates", want, len(want.Pair().Certificate))
	}
	wrapped := read(t, "openssl3.pfx")
	for name, content := range map[string]string{
		"pkcs1":                read(t, "pkcs1.key", "client.pem", "chain.pem"),
		"key_last":             read(t, "client.pem", "chain.pem", "client.key"),
		"escaped_line_breaks":  strings.ReplaceAll(pem, "\n", `\n`),
		"windows_line_breaks":  "\ufeff" + strings.ReplaceAll(pem, "\n", "\r\n"),
		"text_between":         "Bag Attributes\n    friendlyName: x\n" + pem + "\n# end",
		"pkcs12_of_openssl_1":  read(t, "openssl1.pfx"),
		"pkcs12_of_openssl_3":  read(t, "openssl3.pfx"),
		"pkcs12_of_keytool":    read(t, "keytool.pfx"),
		"base64_in_two_lines":  wrapped[:64] + "\r\n" + wrapped[64:] + "\n",
		"base64_with_its_mark": "\ufeff" + wrapped,
	} {
		got, err := certificate.Parse(content)
		if err != nil || got.ID != want.ID || got.Subject != want.Subject || !got.Ends.Equal(want.Ends) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
	other, err := certificate.Parse(read(t, "ec.key", "ec.pem"))
	if err != nil || other.ID == want.ID || other.Subject != "ended" {
		t.Errorf("an EC key: got %+v, %v", other, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", want, want, &want); strings.Contains(text, "PrivateKey") {
		t.Errorf("package fmt prints the key: %s", text)
	}
}

// TestProblems: an error says what to do, and repeats nothing of the text.
func TestProblems(t *testing.T) {
	lines := strings.SplitAfter(read(t, "client.key"), "\n")
	for name, c := range map[string]struct{ content, want string }{
		"nothing":          {"", "is neither PEM nor base64"},
		"a_path":           {"/etc/ssl/client.pfx", "is neither PEM nor base64"},
		"base64_of_a_text": {base64.StdEncoding.EncodeToString([]byte("hello")), "no PKCS#12 that can be read here"},
		"no_key":           {read(t, "client.pem"), "has no private key: want the key and its certificates in one"},
		"no_certificate":   {read(t, "client.key"), "has a private key, but no certificate"},
		"two_keys":         {read(t, "client.key", "ec.key", "client.pem"), "has two private keys"},
		"another_key":      {read(t, "ec.key", "client.pem"), "its private key is not that of its first certificate"},
		"wrong_order":      {read(t, "client.key", "chain.pem", "client.pem"), "is not that of its first certificate"},
		"wrong_issuer":     {read(t, "client.key", "client.pem", "ec.pem"), "number 2 is not the issuer of number 1"},
		"encrypted":        {read(t, "encrypted.key", "client.pem"), "take the password off with `openssl pkey "},
		"encrypted_before": {read(t, "encrypted1.key", "client.pem"), "take the password off with `openssl pkey "},
		"password":         {read(t, "password.pfx"), "has a password: take it off with `openssl pkcs12 "},
		"a_request": {
			strings.ReplaceAll(read(t, "client.pem"), "CERTIFICATE", "CERTIFICATE REQUEST"),
			"neither a certificate nor",
		},
		"a_line_is_missing": {
			lines[0] + strings.Join(lines[2:], "") + read(t, "client.pem"), `cannot read its block "PRIV`,
		},
		"cut": {read(t, "client.key") + read(t, "client.pem")[:300], "a block of its PEM is damaged"},
	} {
		_, err := certificate.Parse(c.content)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for name, c := range map[string]struct{ content, want string }{
		"nothing":  {"", "has no certificate"},
		"with_key": {read(t, "client.pem", "client.key"), "has a private key"},
		"pkcs12":   {read(t, "openssl3.pfx"), "has no certificate"},
	} {
		_, err := certificate.ParseAuthorities(c.content)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("authorities: %s: got %v", name, err)
		}
	}
	one, err := certificate.ParseAuthorities(read(t, "chain.pem"))
	other, otherErr := certificate.ParseAuthorities(strings.ReplaceAll(read(t, "ec.pem"), "\n", `\n`))
	if err != nil || otherErr != nil || one.ID == other.ID || one.Pool.Equal(other.Pool) {
		t.Errorf("authorities: got %v, %v", err, otherErr)
	}
}

func TestDaysLeft(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for ends, want := range map[time.Duration]int{
		0: 0, 24*time.Hour - 1: 0, 24 * time.Hour: 1, 30*24*time.Hour + 1: 30, -1: -1, -24 * time.Hour: -2,
	} {
		if got := (certificate.Certificate{Ends: now.Add(ends)}).DaysLeft(now); got != want {
			t.Errorf("%v: got %d, want %d", ends, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(read(f, "client.key", "client.pem", "chain.pem"))
	f.Add(read(f, "openssl1.pfx"))
	f.Fuzz(func(t *testing.T, content string) {
		c, err := certificate.Parse(content)
		if (err == nil) != (c.Pair() != nil) {
			t.Errorf("got %+v, %v", c, err)
		}
		_, _ = certificate.ParseAuthorities(content)
	})
}
