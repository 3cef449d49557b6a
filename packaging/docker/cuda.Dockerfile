# Image of the client for NVIDIA GPUs. The machine needs NVIDIA's driver and its container toolkit. Build it in the
# repository, and run it with the GPUs:
#
#   docker build -f packaging/docker/cuda.Dockerfile -t psyche-client-cuda .
#   docker run --gpus all psyche-client-cuda doctor
FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ python3-pip && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY packaging/cuda/requirements.txt packaging/cuda/
COPY scripts/libtorch-cuda.sh scripts/
RUN scripts/libtorch-cuda.sh /src/build/cuda
COPY . .
RUN make cuda-bundle && mkdir /bundle && tar -C /bundle --strip-components=1 -xzf build/cuda-bundle/psyche-client-cuda-*.tar.gz

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libstdc++6 ca-certificates \
  && rm -rf /var/lib/apt/lists/* && useradd --create-home --uid 65532 psyche
COPY --from=build /bundle /usr
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER psyche
WORKDIR /home/psyche
RUN mkdir checkpoints
ENTRYPOINT ["/usr/bin/psyche-client"]
