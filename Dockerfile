# The image is one static program and nothing else: no shell, no libraries, no files.
#
# For both architectures, cross-compiled on the builder's own:
#   docker buildx build --platform=linux/amd64,linux/arm64 --tag=REGISTRY/confpin:0.1.0 --push .
# From a static program of this name that is already in DIRECTORY; the Rust stage, which comes later, is not looked at:
#   buildah bud --file=Dockerfile --target=prebuilt --tag=confpin:0.1.0 DIRECTORY

FROM scratch AS base
LABEL org.opencontainers.image.title="confpin" \
      org.opencontainers.image.description="Pins ConfigMaps: each rollout keeps the configuration that it was rolled out with" \
      org.opencontainers.image.licenses="Apache-2.0"
# A number: the kubelet checks runAsNonRoot by it, and there is no file of users.
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/confpin"]

FROM base AS prebuilt
COPY confpin /confpin

FROM --platform=$BUILDPLATFORM rust:1.95-alpine AS build
# ring compiles C: clang does so for any target, and Rust brings musl and a linker for it.
RUN apk add --no-cache clang musl-dev
WORKDIR /source
COPY . .
ARG TARGETARCH
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    set -eu; \
    case "$TARGETARCH" in \
        amd64) target=x86_64-unknown-linux-musl ;; \
        arm64) target=aarch64-unknown-linux-musl ;; \
        *) echo "confpin is built for amd64 and arm64, not for '$TARGETARCH'" >&2; exit 1 ;; \
    esac; \
    rustup target add "$target"; \
    TARGET_CC=clang RUSTFLAGS='-C linker=rust-lld' \
        cargo build --locked --release --package=confpin --bin=confpin --target="$target"; \
    cp "target/$target/release/confpin" /confpin

FROM base
COPY --from=build /confpin /confpin
