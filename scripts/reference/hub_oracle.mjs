// One side of hub_oracle.sh: uploads or downloads with the npm package @huggingface/hub.
//
// node hub_oracle.mjs upload REPO DIR | download REPO
// The endpoint, cache and token come from HF_ENDPOINT, HF_HOME and HF_TOKEN. Node searches for the
// package in NODE_PATH. Download prints the folder of the snapshot.
import { createRequire } from "node:module";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const { createRepo, uploadFiles, snapshotDownload } = createRequire(join(process.env.NODE_PATH, "x"))("@huggingface/hub");
const [action, repo, dir] = process.argv.slice(2);
const common = { repo, hubUrl: process.env.HF_ENDPOINT, accessToken: process.env.HF_TOKEN };
console.debug = () => {};
if (action === "upload") {
	await createRepo(common);
	const files = readdirSync(dir, { recursive: true, withFileTypes: true }).filter((f) => f.isFile());
	await uploadFiles({
		...common,
		useXet: false,
		commitTitle: "from JavaScript",
		files: files.map((f) => {
			const path = join(f.parentPath, f.name);
			return { path: path.slice(dir.length + 1), content: new Blob([readFileSync(path)]) };
		}),
	});
} else {
	console.log(await snapshotDownload({ ...common, cacheDir: join(process.env.HF_HOME, "hub") }));
}
