# Ropewalk on a CPU:   docker build -t ropewalk . && docker run --rm -v "$PWD:/work" ropewalk inspect model
FROM python:3.13-slim

# torch alone and first: without its CPU index pip fetches the build for CUDA.
COPY constraints.txt /tmp/
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$(grep '^torch==' /tmp/constraints.txt)"
COPY pyproject.toml README.md LICENSE /source/
COPY scripts/readme_links.py /source/scripts/
COPY src /source/src
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "/source[models,plot,data,datasets]" && rm -r /source

RUN useradd --create-home ropewalk
USER ropewalk
WORKDIR /work
ENTRYPOINT ["ropewalk"]
