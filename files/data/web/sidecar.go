package web

import (
	"context"
	"net/url"
	"path"
	"slices"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// checkSidecars reads the descriptions next to a token file, compares their token size, and reports
// whether there is one. It is called only for the first file of a location, because thousands of
// requests for files that mostly do not exist would burden the server. An unsuccessful answer means
// that there is no description.
func (c *client) checkSidecars(ctx context.Context, address string, o tokens.Options) (said bool, err error) {
	at, err := url.Parse(address)
	if err != nil || !slices.Contains(tokens.Extensions, path.Ext(at.Path)) {
		return false, nil // its address has no file name
	}
	for _, name := range tokens.Sidecars(at.Path) {
		beside := *at
		beside.Path, beside.RawPath = name, ""
		f := &file{client: c, address: beside.String(), name: Redact(beside.String())}
		if f.version, err = c.glimpse(ctx, f.address); err != nil {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			continue
		}
		stated, found, err := tokens.ReadSidecar(ctx, f)
		if err != nil {
			return false, err
		}
		said = said || found
		if stated.Bytes = -1; found {
			if err := stated.Check(Redact(address), 0, o.TokenSize); err != nil {
				return false, err
			}
		}
	}
	return said, nil
}

// glimpse requests the first byte of a file that may not exist, without retries.
func (c *client) glimpse(ctx context.Context, address string) (version, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	return c.part(ctx, address, make([]byte, 1), 0, nil)
}
