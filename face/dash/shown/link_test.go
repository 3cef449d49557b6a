package shown

import "testing"

func TestLink(t *testing.T) {
	for _, test := range []struct{ kind, repo, revision, want string }{
		{"Hub", "org/model", "main", "https://huggingface.co/org/model/tree/main"},
		{"Hub", "org/model", "", "https://huggingface.co/org/model"},
		{"Hub", "org/model", "../../evil", "https://huggingface.co/org/model"},
		{"Hub", "javascript:alert(1)", "", ""},
		{"Hub", "org/model/../../x", "", ""},
		{"Hub", "@evil.example/x", "", ""},
		{"Gcs", "bucket", "runs/step5", "https://console.cloud.google.com/storage/browser/bucket/runs/step5"},
		{"Gcs", "bucket", "a/../../b", "https://console.cloud.google.com/storage/browser/bucket"},
		{"Gcs", "bucket?x", "", ""},
		{"Local", "/etc", "", ""},
	} {
		if got := link(test.kind, test.repo, test.revision); got != test.want {
			t.Errorf("link(%q, %q, %q) = %q, want %q", test.kind, test.repo, test.revision, got, test.want)
		}
	}
}
