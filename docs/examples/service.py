import itertools, json, os, time, urllib.error, urllib.request

URL, KEY = os.environ.get("TOLLGATE_URL", "http://127.0.0.1:8080"), os.environ["TOLLGATE_ADMIN_KEY"]

def call(path, body, key=None):
    """A POST, repeated with the same key and body while nothing or 503 is answered: that counts nothing twice."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    if key:
        headers["Idempotency-Key"] = key
    for attempt in range(8):
        try:
            request = urllib.request.Request(f"{URL}/v1{path}", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            problem = json.load(error)
            if error.code != 503:
                return error.code, problem
            wait = problem.get("retry_after_ms", 1000) / 1000
        except OSError:                                   # no answer: it may have been done
            wait = 0.1 * 2**attempt
        time.sleep(wait)
    raise RuntimeError("tollgate does not answer")

def read_document(job, pages, read_page):
    ask = {"tenant": "acme", "subject": "user-42", "operation": "ocr.submit", "attributes": {"pages": pages}}
    for attempt in itertools.count(1):
        key = f"{job}/{attempt}"                          # a hold that ended unpaid stays ended: the next attempt has a new key
        status, hold = call("/reservations", ask | {"ttl_seconds": 120}, key)
        if status in (402, 429):
            return f"refused: {hold['detail']}"           # 429: ask again after hold["retry_after_seconds"]
        if status not in (200, 201):
            raise RuntimeError(hold["detail"])            # the call itself is wrong: repeating it does not help
        if hold["status"] == "consumed":
            return "done before"
        if hold["status"] == "reserved":
            break                                         # "released": it failed; "expired": its service died
    done = 0
    try:
        for page in range(pages):
            read_page(page)
            done += 1
    finally:                                              # also when the work failed: what was done is paid, the rest returns
        verb, body = ("consume", {"amount": str(done)}) if done == pages else ("release", {"incurred": str(done)} if done else {})
        status, paid = call(f"/reservations/{hold['id']}/{verb}", body)
        if status in (404, 410) and done:                 # its hold is gone: what was done is recorded by itself
            status, paid = call("/usage", ask | {"attributes": {"pages": done}}, f"{key}/usage")
        if status not in (200, 201) and done:
            raise RuntimeError(paid["detail"])
    return f"read {done} pages"

if __name__ == "__main__":
    print(read_document("job-8812", 3, lambda page: time.sleep(0.1)))
