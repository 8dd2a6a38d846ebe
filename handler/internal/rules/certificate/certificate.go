// Package certificate reads the client certificates that the handler presents to targets, and the authorities that it
// trusts for them, from the texts of settings. No error repeats any part of a text. It is pure.
package certificate

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"asynccaller/handler/internal/plain/bounds"
	"asynccaller/handler/internal/plain/text"
)

// SoonDays is from how many days before its end on a certificate is warned of.
const SoonDays = 30

const day = 24 * time.Hour

// Certificate is a private key and its chain. Its zero value is that of a setting whose text is not known here.
type Certificate struct {
	// Subject is the name in the first certificate, for people.
	Subject string
	// Ends is when the first certificate of the chain ends.
	Ends time.Time
	// ID differs from that of every other certificate.
	ID string

	// pair returns the key and the chain. Package fmt does not print what a function captures.
	pair func() *tls.Certificate
}

// Pair returns the key and the chain, or nil for the zero value. The caller must not change it.
func (c Certificate) Pair() *tls.Certificate {
	if c.pair == nil {
		return nil
	}
	return c.pair()
}

// DaysLeft returns the whole days until the certificate ends; negative if it has ended.
func (c Certificate) DaysLeft(now time.Time) int {
	left := c.Ends.Sub(now)
	if left < 0 {
		return -1 - int(-left/day)
	}
	return int(left / day)
}

// Authorities are the certificates that are trusted for a target instead of those of the system.
type Authorities struct {
	Pool *x509.CertPool
	// ID differs from that of all others.
	ID string
}

// The commands of openssl that make what is read here of what is not.
const (
	noPassword = "`openssl pkcs12 -in OLD.pfx -nodes | " +
		"openssl pkcs12 -export -passout pass: -out NEW.pfx`"
	noCipher = "`openssl pkey -in OLD.pem -out NEW.pem`"
)

// Parse reads a private key and its chain: PEM, or base64 of PKCS#12 without a password. An expired certificate is none
// of its errors.
func Parse(content string) (Certificate, error) {
	content = normalized(content)
	parse := parsePKCS12
	if strings.Contains(content, pemBegin) {
		parse = parsePEM
	}
	key, chain, err := parse(content)
	switch {
	case err != nil:
		return Certificate{}, err
	case key == nil:
		return Certificate{}, errors.New("has no private key: want the key and its certificates in one text")
	case len(chain) == 0:
		return Certificate{}, errors.New("has a private key, but no certificate: want both in one text")
	case !fits(key, chain[0]):
		return Certificate{}, errors.New("its private key is not that of its first certificate: want the key and its " +
			"own certificate first, then its issuers")
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	c := Certificate{
		Subject: text.Line(cmp.Or(chain[0].Subject.CommonName, chain[0].Subject.String()), 80), Ends: chain[0].NotAfter,
		pair: func() *tls.Certificate { return pair },
	}
	hash := sha256.New()
	for n, cert := range chain {
		if n > 0 && !bytes.Equal(chain[n-1].RawIssuer, cert.RawSubject) {
			return Certificate{}, fmt.Errorf("its certificates are in the wrong order: number %d is not the issuer of "+
				"number %d: want the certificate of the key, its issuer, and then the issuer of that", n+1, n)
		}
		pair.Certificate = append(pair.Certificate, cert.Raw)
		c.Ends = bounds.Earliest(c.Ends, cert.NotAfter)
		hash.Write(cert.Raw)
	}
	c.ID = hex.EncodeToString(hash.Sum(nil))
	return c, nil
}

// ParseAuthorities reads the certificates of authorities in PEM.
func ParseAuthorities(content string) (Authorities, error) {
	content = normalized(content)
	key, chain, err := parsePEM(content)
	switch {
	case err != nil:
		return Authorities{}, err
	case key != nil:
		return Authorities{}, errors.New("has a private key, which nobody needs to trust a certificate: take it out")
	case len(chain) == 0:
		return Authorities{}, errors.New("has no certificate: want PEM, which begins with " + pemBegin + "CERTIFICATE")
	}
	a, hash := Authorities{Pool: x509.NewCertPool()}, sha256.New()
	for _, cert := range chain {
		a.Pool.AddCert(cert)
		hash.Write(cert.Raw)
	}
	a.ID = hex.EncodeToString(hash.Sum(nil))
	return a, nil
}

const pemBegin = "-----BEGIN "

// normalized returns a text without a byte order mark, and with the line breaks that settings often cannot have and
// write as \n.
func normalized(content string) string {
	content = strings.TrimSpace(strings.TrimPrefix(content, "\ufeff"))
	return strings.NewReplacer(`\r\n`, "\n", `\n`, "\n").Replace(content)
}

// parsePEM reads the keys and certificates of a text. What else it has is an error, so that nothing is left out.
func parsePEM(content string) (key crypto.PrivateKey, chain []*x509.Certificate, err error) {
	rest := []byte(content)
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			if bytes.Contains(rest, []byte(pemBegin)) {
				err = errors.New("a block of its PEM is damaged: its lines must be as in the file")
			}
			return key, chain, err
		}
		var parsed crypto.PrivateKey
		switch _, isEncrypted := block.Headers["DEK-Info"]; {
		case isEncrypted || block.Type == "ENCRYPTED PRIVATE KEY":
			return nil, nil, errors.New("its private key is encrypted: take the password off with " + noCipher)
		case block.Type == "CERTIFICATE":
			var cert *x509.Certificate
			cert, err = x509.ParseCertificate(block.Bytes)
			chain = append(chain, cert)
		case block.Type == "PRIVATE KEY":
			parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case block.Type == "RSA PRIVATE KEY":
			parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case block.Type == "EC PRIVATE KEY":
			parsed, err = x509.ParseECPrivateKey(block.Bytes)
		case block.Type == "EC PARAMETERS": // openssl writes the curve before the key, which names it, too
		default:
			return nil, nil, fmt.Errorf("has %.40q, which is neither a certificate nor a private key", block.Type)
		}
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("cannot read its block %q", block.Type) // the cause may repeat bytes
		case parsed != nil && key != nil:
			return nil, nil, errors.New("has two private keys")
		case parsed != nil:
			key = parsed
		}
	}
}

// parsePKCS12 reads base64 of PKCS#12. Its certificates have no order: they are put into that of the chain.
func parsePKCS12(content string) (key crypto.PrivateKey, chain []*x509.Certificate, err error) {
	pfx, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(content), ""))
	if err != nil || len(pfx) == 0 {
		return nil, nil, errors.New("is neither PEM nor base64 of PKCS#12")
	}
	key, first, others, err := pkcs12.DecodeChain(pfx, "")
	switch {
	case errors.Is(err, pkcs12.ErrIncorrectPassword), errors.Is(err, pkcs12.ErrDecryption):
		return nil, nil, errors.New("its PKCS#12 has a password: take it off with " + noPassword)
	case err != nil:
		return nil, nil, errors.New("is base64, but no PKCS#12 that can be read here: make it again with " + noPassword)
	}
	all := append([]*x509.Certificate{first}, others...)
	own := slices.IndexFunc(all, func(c *x509.Certificate) bool { return fits(key, c) })
	for own >= 0 {
		last := all[own]
		chain, all = append(chain, last), slices.Delete(all, own, own+1)
		own = slices.IndexFunc(all, func(c *x509.Certificate) bool { return bytes.Equal(c.RawSubject, last.RawIssuer) })
	}
	return key, append(chain, all...), nil
}

// fits reports whether a private key is that of a certificate.
func fits(key crypto.PrivateKey, cert *x509.Certificate) bool {
	signer, isSigner := key.(crypto.Signer)
	if !isSigner {
		return false
	}
	public, isComparable := signer.Public().(interface {
		Equal(other crypto.PublicKey) bool
	})
	return isComparable && public.Equal(cert.PublicKey)
}
