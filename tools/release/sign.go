package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"aead.dev/minisign"
)

// passwordVariable contains the password of a key file.
const passwordVariable = "PSYCHE_RELEASE_PASSWORD"

// errNoPassword means that a new key would be stored without encryption.
var errNoPassword = errors.New("no password")

func runKey(args []string, out io.Writer) error {
	fl := flag.NewFlagSet("key", flag.ContinueOnError)
	path := fl.String("out", "", "`FILE` for the private key, encrypted with $"+passwordVariable+"; the public key goes to FILE.pub")
	if err := fl.Parse(args); err != nil {
		return err
	}
	if *path == "" {
		return errors.New("-out is missing; pass a file outside the repository")
	}
	password := os.Getenv(passwordVariable)
	if password == "" {
		return fmt.Errorf("%w; set %s", errNoPassword, passwordVariable)
	}
	return newKey(*path, password, out)
}

// newKey writes a new key pair. It overwrites no file.
func newKey(path, password string, out io.Writer) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	sealed, err := minisign.EncryptKey(password, private)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	_, err = file.Write(sealed)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	text, err := public.MarshalText()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".pub", append(text, '\n'), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s: private key; keep it secret\n%s.pub: public key %s\n", path, path, public)
	return err
}

// signer signs the checksums of a release. The zero value signs nothing.
type signer struct {
	private minisign.PrivateKey
	public  string // base64; empty for a release without a signature
}

// readSigner reads a key file. An empty path returns the zero signer.
func readSigner(path, password string) (signer, error) {
	if path == "" {
		return signer{}, nil
	}
	private, err := minisign.PrivateKeyFromFile(password, path)
	if err != nil {
		return signer{}, fmt.Errorf("%s: %w; pass a minisign key, and its password in %s", path, err, passwordVariable)
	}
	public, ok := private.Public().(minisign.PublicKey)
	if !ok {
		return signer{}, fmt.Errorf("%s: not a key pair of minisign", path)
	}
	return signer{private, public.String()}, nil
}

// sign returns a signature file. It contains no time, so equal releases have equal signatures. It
// signs the hash of the data, because newer versions of minisign refuse the older form.
func (s signer) sign(data []byte, comment string) ([]byte, error) {
	reader := minisign.NewReader(bytes.NewReader(data))
	if _, err := io.Copy(io.Discard, reader); err != nil {
		return nil, err
	}
	return reader.SignWithComments(s.private, comment, "signature of SHA256SUMS"), nil
}
