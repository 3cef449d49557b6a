"""One side of hub_oracle.sh: uploads, downloads or reads the cache with huggingface_hub.

python hub_oracle.py upload REPO DIR | download REPO | offline REPO
The endpoint, cache and token come from HF_ENDPOINT, HF_HOME and HF_TOKEN; download and
offline print the folder of the snapshot.
"""
import sys

from huggingface_hub import HfApi, snapshot_download

action, repo = sys.argv[1:3]
if action == "upload":
    api = HfApi()
    api.create_repo(repo, exist_ok=True)
    api.upload_folder(repo_id=repo, folder_path=sys.argv[3], commit_message="from Python")
else:
    print(snapshot_download(repo, local_files_only=action == "offline"))
