package credits

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/record/config"
)

// maxSources bounds the described sources of data.
const maxSources = 32

// sources describes the sources of a run's data, and returns the names of data sets of the Hub among
// them. It omits folders and private addresses of members and servers.
func sources(locations []config.DataLocation) (described []checkpoint.CardSource, datasets []string) {
	add := func(what, where string) {
		if len(described) < maxSources {
			described = append(described, checkpoint.CardSource{What: what, Where: public(where)})
			if name := dataset(where); name != "" {
				datasets = append(datasets, name)
			}
		}
	}
	for _, l := range locations {
		switch {
		case l.Server != nil:
			add("a data server of the run", "")
		case l.Local != nil:
			add("token files in a folder of each member", "")
		case l.Preprocessed != nil:
			add("samples in a folder of each member", "")
		case l.Dummy != nil:
			add("zeros, a test of the network", "")
		case l.WeightedHTTP != nil:
			add("the mix of token files in", l.WeightedHTTP.URL)
		case l.HTTP != nil:
			at := l.HTTP.Location
			switch {
			case at.SingleURL != nil:
				add("the token file", *at.SingleURL)
			case at.NumberedFiles != nil:
				add(fmt.Sprintf("%d token files", at.NumberedFiles.NumFiles), at.NumberedFiles.URLTemplate)
			case at.Gcp != nil:
				add("the token files in", "gs://"+at.Gcp.BucketName+"/"+at.Gcp.FilterDirectory)
			}
			for _, one := range at.URLs {
				add("the token file", one)
			}
		}
	}
	return described, datasets
}

// public returns an address without a user name, a password and parameters.
func public(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	path := u.Path // not u.String(), which escapes the braces of a template
	return u.Scheme + "://" + u.Host + path
}

// dataset returns OWNER/NAME of an address at the Hub, or an empty string.
func dataset(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host != "huggingface.co" {
		return ""
	}
	parts := strings.Split(u.Path, "/")
	if len(parts) < 4 || parts[1] != "datasets" {
		return ""
	}
	return parts[2] + "/" + parts[3]
}
